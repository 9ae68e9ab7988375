"""Tables, figures and the HTML page of finished runs, made from run folders only."""

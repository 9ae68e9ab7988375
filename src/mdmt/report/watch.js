// A watched page asks its server every two seconds whether there is news, and keeps its place when it loads them.
const place = sessionStorage.getItem("place");
if (place !== null) { sessionStorage.removeItem("place"); scrollTo({ top: Number(place), behavior: "instant" }); }
async function ask() {
  try {
    const now = await (await fetch("version", { cache: "no-store" })).text();
    if (now !== document.body.dataset.version) { sessionStorage.setItem("place", scrollY); location.reload(); return; }
  } catch { /* the server is gone; perhaps it comes back */ }
  setTimeout(ask, 2000);
}
ask();

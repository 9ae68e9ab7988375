// A watched page asks its server for news every two seconds, and keeps its scroll position across reloads.
async function ask() {
  try {
    const now = await (await fetch("version", { cache: "no-store" })).text();
    if (now !== document.body.dataset.version) { location.reload(); return; }
  } catch { /* the server is down; it may come back */ }
  setTimeout(ask, 2000);
}
history.scrollRestoration = "manual";
addEventListener("pagehide", () => {
  const part = [...document.querySelectorAll("section[id]")].find((section) => section.getBoundingClientRect().bottom > 1);
  if (part && scrollY) sessionStorage.setItem("place", JSON.stringify([part.id, part.getBoundingClientRect().top]));
});
addEventListener("load", () => {
  const [id, top] = JSON.parse(sessionStorage.getItem("place") ?? "[]");
  sessionStorage.removeItem("place");
  const part = id && document.getElementById(id);
  if (part) scrollBy({ top: part.getBoundingClientRect().top - top, behavior: "instant" });
});
ask();

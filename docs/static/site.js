// On a phone a long page shows its headings, which unfold.
addEventListener("DOMContentLoaded", () => {
  if (innerWidth > 700 || document.documentElement.scrollHeight < 12000) return;
  for (const section of document.querySelectorAll("article section section")) {
    if (section.parentElement.parentElement.closest("section")) continue;
    const [heading, ...rest] = [...section.children].filter(part => part.tagName !== "SPAN");
    const fold = document.createElement("details"), summary = document.createElement("summary");
    heading.before(fold);
    summary.append(heading);
    fold.append(summary, ...rest);
  }
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    const own = target.querySelector(":scope > details");
    if (own) own.open = true;
    target.scrollIntoView();
  };
  unfold();
  addEventListener("hashchange", unfold);
});

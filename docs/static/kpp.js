// What the theme, Sphinx and its extensions leave out and a screen reader needs.
document.addEventListener("DOMContentLoaded", () => {
  // A button that unfolds a part of the side bar is named after the page above that part.
  for (const summary of document.querySelectorAll(".bd-sidenav details > summary")) {
    const page = summary.closest("li").querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${page.textContent.trim()}`);
  }
  // The parameters of a long signature stand on lines of their own; they are no list of definitions.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dl > dd")) part.setAttribute("role", "presentation");
  for (const entry of document.querySelectorAll(".citation-list > .citation")) entry.setAttribute("role", "listitem");
});

// The tags of the gallery are made by sphinx-gallery, for the mouse only; keys and screen readers use them, too.
window.addEventListener("load", () => {
  for (const tag of document.querySelectorAll(".sphx-glr-tag, #sphx-glr-tag-clear")) {
    tag.setAttribute("role", "button");
    tag.tabIndex = 0;
    tag.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      tag.click();
    });
  }
});

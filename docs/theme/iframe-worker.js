// A browser starts no worker of a page that was opened as a file, and the search is one. Here a frame runs its script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.inside = new Promise((done, failed) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          // What the script sends goes to the page, not to the frame itself.
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = new URL(address, document.baseURI);
          script.onload = () => done(inside);
          script.onerror = failed;
          inside.document.body.append(script);
          frame.onload = null;
        };
      });
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}

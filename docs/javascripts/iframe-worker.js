// The search runs in a web worker. Browsers start no workers for pages of a local folder (file://):
// there, the script of the worker runs in a hidden frame, which is given the interface of a worker.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;

      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script");
          script.onload = resolve;
          script.onerror = () => reject(new Error(`${source} cannot be loaded`));
          script.src = source;
          scope.document.body.append(script);
        });

      scope.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.scope = scope;
      this.frame = frame;
      this.ready = load(new URL(url, location.href).href);
      this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error })));
    }

    // Messages wait until the script has been loaded.
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.Worker = FrameWorker;
}

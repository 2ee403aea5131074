// The identity provider of the tests: the certified oidc-provider, with a plain sign-in page and a way for tests to
// change people, groups, keys and the clock, or to make it silent. It ends with the process that started it.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { Provider } from "oidc-provider";

const realNow = Date.now;
const state = { clients: [], people: {}, silent: false, clock: 0, key: 1, refresh: true, device: true };
const keys = new Map();
const log = [];
let handler;

function signingKey(number) {
  if (!keys.has(number)) {
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    keys.set(number, { ...privateKey.export({ format: "jwk" }), kid: `key-${number}`, use: "sig", alg: "RS256" });
  }
  return keys.get(number);
}

function page(body) {
  return (context, form) => {
    context.body = `<!doctype html><html lang="en"><title>Example School</title>${body(form)}`;
  };
}

// Grants and sessions are kept by the module, so that a provider with other keys or clients goes on with them.
function rebuild() {
  const provider = new Provider(issuer, {
    clients: state.clients,
    jwks: { keys: [signingKey(state.key)] },
    cookies: { keys: ["a key for the cookies of tests"] },
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    conformIdTokenClaims: false,
    findAccount: (_, id) => state.people[id] && {
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, ...state.people[id] }),
    },
    async loadExistingGrant(context) {
      const { client, session } = context.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope("openid profile email offline_access");
      await grant.save();
      return grant;
    },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: () => state.refresh,
    rotateRefreshToken: true,
    pkce: { required: () => true, methods: ["S256"] },
    features: {
      devInteractions: { enabled: false },
      // Pages of our own: those of the package load fonts from the internet.
      deviceFlow: {
        enabled: state.device,
        userCodeInputSource: page((form) => `${form}<button form="op.deviceInputForm">Continue</button>`),
        userCodeConfirmSource: page((form) => `${form}<button form="op.deviceConfirmForm">Continue</button>`),
        successSource: page(() => "Signed in"),
      },
      revocation: { enabled: true },
      rpInitiatedLogout: {
        enabled: true,
        logoutSource: page(
          (form) => `${form}<button form="op.logoutForm" name="logout" value="yes">Yes, sign me out</button>`,
        ),
      },
    },
    renderError(context, out) {
      context.type = "text";
      context.body = JSON.stringify(out);
    },
  });
  provider.on("server_error", (_, error) => console.error(error));
  provider.on("grant.error", (_, error) => log.push({ refused: error.message, detail: error.error_detail }));
  const serve = provider.callback();
  handler = async (request, response) => {
    if (!request.url.startsWith("/interaction/")) return serve(request, response);
    const details = await provider.interactionDetails(request, response);
    if (request.method === "POST") {
      const login = new URLSearchParams(await read(request)).get("login");
      const result = state.people[login] ? { login: { accountId: login } } : { error: "access_denied" };
      return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    }
    response.setHeader("Content-Type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>Example School</title><h1>Example School</h1>
      <p>${details.params.client_id} asks you to sign in.</p>
      <form method="post"><label>Account <input name="login" autofocus></label> <button>Continue</button></form>`);
  };
}

function read(request) {
  return new Promise((resolve) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => resolve(Buffer.concat(chunks).toString()));
  });
}

async function serve(request, response) {
  if (request.url === "/control") {
    const change = JSON.parse((await read(request)) || "{}");
    Object.assign(state, change);
    Date.now = () => realNow() + state.clock * 1000;
    if (["clients", "key", "device"].some((name) => name in change)) rebuild();
    response.end(JSON.stringify(log));
    return;
  }
  const path = request.url.split("?")[0];
  log.push({ method: request.method, path });
  if (state.silent && !path.startsWith("/interaction/")) return; // the connection stays open, and nothing comes
  await handler(request, response);
}

const server = createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    response.statusCode = 500;
    response.end();
  });
});
let issuer;
server.listen(0, "127.0.0.1", () => {
  issuer = `http://localhost:${server.address().port}`;
  rebuild();
  console.log(issuer);
});
process.stdin.on("end", () => process.exit(0)).resume();

/** What docs/openapi.json and the tables of docs/api.md say in words. The document that a Worker serves has none of it, to stay small. */

/** What the operations of each tag are about. */
export const TAGS: Readonly<Record<string, string>> = {
  openapi: 'This document',
  limits: 'Limits by name',
  usage: 'What a caller has left',
  keys: 'API keys, and keys that were created elsewhere',
  consumers: 'Plans, blocks and overrides',
  switches: 'Changes to limits without a deployment',
  'kill-switch': 'Turns all limits off, and on again',
  stats: 'What was decided, and about whom',
  why: 'Why a caller is refused',
  tokens: 'Service tokens of this API',
  audit: 'Changes of administrators',
}

const WITH_PLAN = 'With `plan`, the scope consumers:write is needed too.'
const REMOVED = 'No such thing is left, so a repeat is answered with 404.'

/** By the ids of the operations. */
export const OPERATIONS: Readonly<Record<string, readonly [summary: string, description?: string]>> = {
  openapi: ['This document'],
  decide: [
    'Decide under a limit by name, and spend if it admits',
    'A refusal has the status 200 too: read `allowed`. With `waitMs`, waits up to so long for units. With `hold`, the receipt holds units in flight.',
  ],
  peek: ['Read what a decision would be now'],
  reserve: ['Reserve units whose amount is known only later'],
  refund: ['Give back what a decision has spent'],
  settle: ['Replace reserved units by what the call has cost'],
  renew: [
    'Hold units in flight for longer',
    'About every third of `renewWithinMs`. If the status is 422, they are held no longer: decide again.',
  ],
  release: ['Release units in flight. A repeat is harmless'],
  reset: ['Make the whole budget of an identity available again'],
  pause: [
    'Refuse all calls for an identity until a time',
    'For `forMs`, or as long as a header Retry-After of a third party says (seconds or a date), at most `longestPause` of the config. Never ends a longer pause. If `retryAfter` cannot be read, nothing is paused.',
  ],
  resume: ['End the pause of an identity'],
  usage: [
    'Show a caller what it has left',
    'With a credential of the gateway, such as an API key, in place of a service token. Has the enforced rules that count by consumer or credential alone. Spends nothing.',
  ],
  listKeys: ['List keys'],
  createKey: ['Create an API key', WITH_PLAN],
  importKey: ['Import a key that was created elsewhere', `By its SHA-256, or as text. ${WITH_PLAN}`],
  showKey: ['Show a key'],
  changeKey: ['Change the label, the plan or the end of a key', `null removes a value. ${WITH_PLAN}`],
  rotateKey: ['Replace a key by a new one'],
  revokeKey: ['Revoke a key', REMOVED],
  listConsumers: ['List consumers'],
  showConsumer: ['Show a consumer'],
  changeConsumer: ['Set the plan of a consumer'],
  blockConsumer: ['Block a consumer'],
  unblockConsumer: ['Unblock a consumer'],
  removeConsumer: ['Remove a consumer with its keys, settings and counters', REMOVED],
  setOverride: ['Give a consumer other numbers, or another mode, for a rule'],
  removeOverride: ['Remove an override'],
  listSwitches: ['Show the live switches'],
  setSwitch: [
    'Change the mode or the share of a rule',
    'A rule of a limit by name is `<limit>/<rule>`, with the slash encoded as %2F.',
  ],
  removeSwitch: ['Let a rule follow the config again'],
  setKillSwitch: ['Turn all limits off'],
  removeKillSwitch: ['Turn all limits on again'],
  stats: ['Show what was decided'],
  topCallers: ['Show whom each rule has refused most'],
  why: ['Say why a caller is refused, or that it is not'],
  listTokens: ['List service tokens'],
  createToken: ['Create a service token'],
  showToken: ['Show a service token'],
  rotateToken: ['Replace a service token by a new one'],
  revokeToken: ['Revoke a service token', REMOVED],
  audit: ['Show who has changed what, newest first'],
}

const DECISION = {
  success: 'The same as `allowed`.',
  allowed: 'If false, nothing was spent.',
  delayMs: 'How long to wait before the work starts (`leaky-bucket`; else 0).',
  retryAfterMs: 'After this time the same cost would be allowed. -1: never.',
  pausedUntil: 'When the pause of the limit ends. Absent: it is not paused.',
  degraded: 'Why the store has not decided. Absent: it has.',
}
const KEY = {
  id: '`<consumer>/<digits>`: the path of the key below /keys.',
  plan: 'Absent: the plan of the consumer applies.',
  hint: 'The last letters of the key.',
}
const SECRET_KEY = { ...KEY, key: 'The key itself. It cannot be shown again.' }
const SECRET_TOKEN = { token: 'The token itself. It cannot be shown again.' }
const PAGE = {
  items: 'Can be fewer than the limit, also if there is a cursor.',
  cursor: 'For the next page. Absent: this is the last one.',
}

/** By the names of the schemas and of their members. */
export const MEMBERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  RuleResult: { inFlight: 'The rule counts units in flight. Without `hold` they are released at once.' },
  State: DECISION,
  Decision: {
    ...DECISION,
    renewWithinMs: 'Units are in flight: renew them within this time, and release them at the end.',
  },
  Hold: { renewWithinMs: '0: they are released.' },
  Settlement: { ...DECISION, applied: 'Whether this request has replaced the reserved units.' },
  Pause: { retryAfterMs: 'Until the pause ends.' },
  Key: KEY,
  CreatedKey: SECRET_KEY,
  RotatedKey: SECRET_KEY,
  CreatedToken: SECRET_TOKEN,
  RotatedToken: SECRET_TOKEN,
  Replaced: { expiresAt: 'null: its end could not be set.' },
  KeyPage: PAGE,
  ConsumerPage: PAGE,
  TokenPage: PAGE,
  AuditPage: PAGE,
  Consumer: { keys: 'At most 100. The operation listKeys has all.' },
  ConsumerChange: { overrides: 'The names of their rules.' },
  RuleUsage: {
    unit: '`requests`, or a unit of the config.',
    allowance: 'The limit in words: `120 per minute`.',
    remaining: 'Units that can be spent at once.',
    resetAfterMs: 'Until the whole budget is back, if nothing else is spent.',
    debt: 'Units spent above the limit.',
    countsAll: 'Whether the rule counts every request of the caller.',
  },
  Problem: {
    type: 'A stable name of the kind of problem.',
    scope: 'The scope that is missing.',
    id: 'Of what the first request with this Idempotency-Key has created.',
    'violated-policies': 'The rules that refuse.',
    change: 'Whether a change was made: none, or unknown.',
  },
}

export const PARAMETERS: Readonly<Record<string, string>> = {
  'Idempotency-Key':
    'A repeat within a day creates nothing twice: 409 with the id of what the first request has created.',
  'Sluice-Reason': 'Why the change is made.',
}

/**
 * What the OpenAPI document says about each operation, in addition to its route: its summary, its parameters in words, and the schema of its
 * success.
 */

/** JSON Schema 2020-12, as far as it is used here. */
export type JsonSchema = Readonly<Record<string, unknown>>

/** What each tag is about. */
export const TAGS = {
  limits: 'Limits by name',
  usage: 'What a caller has left',
  keys: 'API keys, and keys that were created elsewhere',
  consumers: 'Plans, blocks and overrides',
  switches: 'Changes to limits without a deployment',
  statistics: 'What was decided, about whom, and why',
  tokens: 'Service tokens of this API',
  audit: 'Changes of administrators',
  document: 'This document',
} as const

export interface Operation {
  /** What the document and the command line call it. */
  id: string
  tag: keyof typeof TAGS
  summary: string
  description?: string
  /** Of the success. */
  result: JsonSchema
}

const text: JsonSchema = { type: 'string' }
const flag: JsonSchema = { type: 'boolean' }
const count: JsonSchema = { type: 'integer' }
const number: JsonSchema = { type: 'number' }
const time: JsonSchema = { type: 'string', format: 'date-time' }
const ref = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` })
const list = (items: JsonSchema): JsonSchema => ({ type: 'array', items })
const nullable = (schema: JsonSchema): JsonSchema =>
  '$ref' in schema ? { anyOf: [schema, { type: 'null' }] } : { ...schema, type: [schema.type, 'null'] }
const oneOf = (...words: string[]): JsonSchema => ({ type: 'string', enum: words })
const byName = (value: JsonSchema): JsonSchema => ({ type: 'object', additionalProperties: value })

/** @param members those whose name ends with `?` may be absent */
function object(members: Record<string, JsonSchema>): JsonSchema {
  const required = Object.keys(members).filter(name => !name.endsWith('?'))
  const properties = Object.fromEntries(
    Object.entries(members).map(([name, schema]) => [name.replace(/\?$/, ''), schema]),
  )
  return { type: 'object', properties, ...(required.length > 0 && { required }) }
}

const described = (description: string, schema: JsonSchema): JsonSchema => ({ ...schema, description })

const page = (items: JsonSchema): JsonSchema =>
  object({
    items: described('Can be fewer than the limit, also if there is a cursor.', list(items)),
    'cursor?': described('For the next page. Absent: this is the last one.', text),
  })

const decision = {
  success: described('The same as `allowed`.', flag),
  limit: text,
  allowed: described('If false, nothing was spent.', flag),
  delayMs: described('How long to wait before the work starts (`leaky-bucket`; else 0).', count),
  retryAfterMs: described('After this time the same cost would be allowed. -1: never.', count),
  rules: list(ref('RuleResult')),
  'pausedUntil?': described('When the pause of the limit ends. Absent: it is not paused.', time),
  'degraded?': described('Why the store has not decided. Absent: it has.', text),
}

const signature = { at: time, by: text, 'until?': time, 'reason?': text }
const enforced = oneOf('enforce', 'shadow')
const mode = oneOf('enforce', 'shadow', 'off')
const block = { blockedAt: nullable(time), 'blockedUntil?': time, 'blockedBy?': text, 'reason?': text }
const settings = { consumer: text, plan: nullable(text), ...block }
const key = {
  id: described('`<consumer>/<digits>`: the path of the key below /keys.', text),
  consumer: text,
  kind: oneOf('api-key', 'opaque-key'),
  mode: oneOf('live', 'test'),
  'plan?': described('Absent: the plan of the consumer applies.', text),
  'label?': text,
  createdAt: time,
  'expiresAt?': time,
  'hint?': described('The last letters of the key.', text),
  'replacedBy?': text,
  'signedBy?': text,
}
const secretKey = { ...key, key: described('The key itself. It cannot be shown again.', text) }
const replaces = object({ id: text, expiresAt: described('null: its end could not be set.', nullable(time)) })
const token = {
  id: text,
  name: text,
  scopes: list(text),
  createdAt: time,
  'expiresAt?': time,
  'by?': text,
  'replacedBy?': text,
}
const secretToken = { ...token, token: described('The token itself. It cannot be shown again.', text) }
const override = {
  rule: text,
  'limit?': number,
  'burst?': number,
  'queue?': number,
  'mode?': mode,
  until: nullable(time),
  'at?': time,
  'by?': text,
  status: oneOf('applies', 'over', 'rule-changed', 'rule-gone', 'rule-off'),
}
const reservations = object({
  ...{
    made: count,
    settled: count,
    late: count,
    unsettled: count,
    reserved: number,
    cost: number,
    debt: number,
  },
})
const callCounts = { outcome: text, cause: text, count }

/** The schemas that several operations share, by the name that generated clients give them. */
export const COMPONENTS: Readonly<Record<string, JsonSchema>> = {
  RuleResult: object({
    name: text,
    mode: enforced,
    allowed: flag,
    limit: number,
    remaining: number,
    resetAfterMs: count,
    retryAfterMs: count,
    'debt?': number,
    'inFlight?': described(
      'The rule counts units in flight. Without `hold` they are released at once.',
      flag,
    ),
  }),
  Receipt: object({
    id: text,
    limit: text,
    identity: byName({ type: ['string', 'number'] }),
    at: count,
    costs: byName(count),
    'reserved?': byName(count),
    'held?': byName(count),
    signature: text,
  }),
  State: object(decision),
  Decision: object({
    ...decision,
    'renewWithinMs?': described(
      'Units are in flight: renew them within this time, and release them at the end.',
      count,
    ),
    receipt: ref('Receipt'),
  }),
  Hold: object({ limit: text, renewWithinMs: described('0: they are released.', count) }),
  Settlement: object({
    ...decision,
    receipt: ref('Receipt'),
    applied: described('Whether this request has replaced the reserved units.', flag),
  }),
  Pause: object({
    limit: text,
    paused: flag,
    retryAfterMs: described('Until the pause ends.', count),
    'pausedUntil?': time,
  }),
  Key: object(key),
  CreatedKey: object(secretKey),
  RotatedKey: object({ ...secretKey, replaces }),
  Override: object(override),
  Consumer: object({
    ...settings,
    keys: described('At most 100. The operation listKeys has all.', list(ref('Key'))),
    'hasMoreKeys?': flag,
    overrides: list(ref('Override')),
  }),
  ConsumerSettings: object({ ...settings, overrides: list(ref('Override')) }),
  ConsumerChange: object({
    ...settings,
    overrides: described('The names of their rules.', list(text)),
    'keysOnOtherPlans?': described(
      'At most 100, of the first 1,000 keys.',
      list(object({ id: text, 'plan?': text })),
    ),
    'hasMoreKeys?': described('Other keys may have other plans, too.', flag),
  }),
  OverrideChange: object({ consumer: text, ...override, removed: list(ref('Override')) }),
  Switches: object({
    kill: nullable(object({ ...signature, status: oneOf('applies', 'over') })),
    rules: list(
      object({
        rule: text,
        ...signature,
        'mode?': mode,
        'share?': number,
        config: nullable(object({ mode, share: number })),
        status: oneOf('applies', 'over', 'rule-gone'),
      }),
    ),
  }),
  Token: object(token),
  CreatedToken: object(secretToken),
  RotatedToken: object({ ...secretToken, replaces }),
  Stats: object({
    since: time,
    unit: oneOf('minute', 'hour', 'day'),
    rules: list(
      object({
        ...{ rule: text, route: text, plan: text, allowed: count, limited: count },
        ...{ shadowAllowed: count, shadowLimited: count, agreed: count, disagreed: count },
      }),
    ),
    requests: list(object({ ...callCounts, route: text })),
    withoutTrip: byName(count),
    test: byName(count),
    lost: count,
    calls: list(object({ ...callCounts, limit: text })),
    callsWithoutTrip: byName(count),
    lostCalls: count,
    'reservations?': byName(reservations),
  }),
  AuditEntry: object({
    id: text,
    at: time,
    actor: object({
      kind: oneOf('token', 'operator', 'process'),
      name: text,
      'id?': text,
      'isClaimed?': flag,
    }),
    action: text,
    target: text,
    before: { type: 'object' },
    after: { type: 'object' },
    'reason?': text,
    'requestId?': text,
  }),
  RefusedCallers: object({
    rule: text,
    mode: enforced,
    sum: count,
    spread: oneOf('one caller', 'many callers', 'not known'),
    callers: list(
      object({ name: text, atLeast: count, atMost: count, since: time, last: time, byMinute: list(count) }),
    ),
  }),
  Why: object({
    caller: text,
    kind: oneOf('consumer', 'key', 'address', 'identity'),
    state: oneOf('refused', 'partly', 'admitted', 'unknown'),
    sentence: text,
    plan: nullable(text),
    blockedAt: nullable(time),
    overrides: list(text),
    'hasMoreKeys?': described('Only 100 keys of the consumer were looked at.', flag),
    kill: nullable(object(signature)),
    rules: list(
      object({
        ...{ rule: text, mode: enforced, limit: number, cost: number, allowed: flag },
        ...{ remaining: number, retryAfterMs: count },
        'pausedUntil?': time,
        'switch?': object({ ...signature, 'mode?': mode, 'share?': number }),
      }),
    ),
    refusals: list(
      object({
        ...{ rule: text, mode: enforced, atLeast: count, atMost: count, since: time, last: time },
        byMinute: list(count),
      }),
    ),
    notAsked: list(text),
  }),
  Usage: object({
    'consumer?': text,
    mode: oneOf('live', 'test'),
    'plan?': text,
    rules: list(
      object({
        name: text,
        unit: described('`requests`, or a unit of the config.', text),
        limit: number,
        allowance: described('The limit in words: `120 per minute`.', text),
        remaining: described('Units that can be spent at once.', number),
        resetAfterMs: described('Until the whole budget is back, if nothing else is spent.', count),
        'debt?': described('Units spent above the limit.', number),
        countsAll: described('Whether the rule counts every request of the caller.', flag),
      }),
    ),
  }),
  Problem: object({
    type: described('A stable name of the kind of problem.', text),
    title: text,
    status: count,
    detail: text,
    requestId: text,
    'errors?': list(object({ pointer: text, detail: text })),
    'scope?': described('The scope that is missing.', text),
    'id?': described('Of what the first request with this Idempotency-Key has created.', text),
    'violated-policies?': described('The rules that refuse.', list(text)),
    'change?': described('Whether a change was made: none, or unknown.', oneOf('none', 'unknown')),
  }),
}

const REMOVED = 'No such thing is left, so a repeat is answered with 404.'

/** By the method and the path of the route. */
export const OPERATIONS: Readonly<Record<string, Operation>> = {
  'GET openapi.json': {
    id: 'openapi',
    tag: 'document',
    summary: 'This document',
    result: { type: 'object' },
  },
  'POST limits/{name}': {
    id: 'decide',
    tag: 'limits',
    summary: 'Decide under a limit by name, and spend if it admits',
    description:
      'A refusal has the status 200 too: read `allowed`. With `waitMs`, waits up to so long for units. With `hold`, the receipt holds units in flight.',
    result: ref('Decision'),
  },
  'POST limits/{name}/peek': {
    id: 'peek',
    tag: 'limits',
    summary: 'Read what a decision would be now',
    result: ref('State'),
  },
  'POST limits/{name}/reserve': {
    id: 'reserve',
    tag: 'limits',
    summary: 'Reserve units whose amount is known only later',
    result: ref('Decision'),
  },
  'POST limits/{name}/refund': {
    id: 'refund',
    tag: 'limits',
    summary: 'Give back what a decision has spent',
    description:
      '`cost`: how many of its units are given back in all; absent: all of them. So a repeat gives back nothing more.',
    result: ref('Decision'),
  },
  'POST limits/{name}/settle': {
    id: 'settle',
    tag: 'limits',
    summary: 'Replace reserved units by what the call has cost',
    result: ref('Settlement'),
  },
  'POST limits/{name}/renew': {
    id: 'renew',
    tag: 'limits',
    summary: 'Hold units in flight for longer',
    description:
      'About every third of `renewWithinMs`. If the status is 422, they are held no longer: decide again.',
    result: ref('Hold'),
  },
  'POST limits/{name}/release': {
    id: 'release',
    tag: 'limits',
    summary: 'Release units in flight. A repeat is harmless',
    result: ref('Hold'),
  },
  'POST limits/{name}/reset': {
    id: 'reset',
    tag: 'limits',
    summary: 'Make the whole budget of an identity available again',
    result: ref('State'),
  },
  'POST limits/{name}/pause': {
    id: 'pause',
    tag: 'limits',
    summary: 'Refuse all calls for an identity until a time',
    description:
      'For `forMs`, or as long as a header Retry-After of a third party says (seconds or a date), at most `longestPause` of the config. Never ends a longer pause. If `retryAfter` cannot be read, nothing is paused.',
    result: ref('Pause'),
  },
  'POST limits/{name}/resume': {
    id: 'resume',
    tag: 'limits',
    summary: 'End the pause of an identity',
    result: ref('Pause'),
  },
  'GET usage': {
    id: 'usage',
    tag: 'usage',
    summary: 'Show a caller what it has left',
    description:
      'With a credential of the gateway, such as an API key, in place of a service token. Has the enforced rules that count by consumer or credential alone. Spends nothing.',
    result: ref('Usage'),
  },
  'GET keys': { id: 'listKeys', tag: 'keys', summary: 'List keys', result: page(ref('Key')) },
  'POST keys': {
    id: 'createKey',
    tag: 'keys',
    summary: 'Create an API key',
    description: 'With `plan`, the scope consumers:write is needed too.',
    result: ref('CreatedKey'),
  },
  'POST keys/import': {
    id: 'importKey',
    tag: 'keys',
    summary: 'Import a key that was created elsewhere',
    description:
      'By its SHA-256, or as text. The config needs `credentials.opaqueKeys`. With `plan`, the scope consumers:write is needed too.',
    result: ref('Key'),
  },
  'GET keys/{consumer}/{digits}': { id: 'showKey', tag: 'keys', summary: 'Show a key', result: ref('Key') },
  'PATCH keys/{consumer}/{digits}': {
    id: 'changeKey',
    tag: 'keys',
    summary: 'Change the label, the plan or the end of a key',
    description: 'null removes a value. With `plan`, the scope consumers:write is needed too.',
    result: ref('Key'),
  },
  'POST keys/{consumer}/{digits}/rotate': {
    id: 'rotateKey',
    tag: 'keys',
    summary: 'Replace a key by a new one',
    result: ref('RotatedKey'),
  },
  'DELETE keys/{consumer}/{digits}': {
    id: 'revokeKey',
    tag: 'keys',
    summary: 'Revoke a key',
    description: REMOVED,
    result: object({ id: text, revoked: flag }),
  },
  'GET consumers': {
    id: 'listConsumers',
    tag: 'consumers',
    summary: 'List consumers',
    result: page(ref('Consumer')),
  },
  'GET consumers/{consumer}': {
    id: 'showConsumer',
    tag: 'consumers',
    summary: 'Show a consumer',
    result: ref('Consumer'),
  },
  'PATCH consumers/{consumer}': {
    id: 'changeConsumer',
    tag: 'consumers',
    summary: 'Set the plan of a consumer',
    result: ref('ConsumerChange'),
  },
  'PUT consumers/{consumer}/block': {
    id: 'blockConsumer',
    tag: 'consumers',
    summary: 'Block a consumer',
    result: ref('ConsumerChange'),
  },
  'DELETE consumers/{consumer}/block': {
    id: 'unblockConsumer',
    tag: 'consumers',
    summary: 'Unblock a consumer',
    result: ref('ConsumerChange'),
  },
  'DELETE consumers/{consumer}': {
    id: 'removeConsumer',
    tag: 'consumers',
    summary: 'Remove a consumer with its keys, settings and counters',
    description: REMOVED,
    result: object({ consumer: text, removed: flag, keys: count }),
  },
  'PUT consumers/{consumer}/overrides/{rule}': {
    id: 'setOverride',
    tag: 'consumers',
    summary: 'Give a consumer other numbers, or another mode, for a rule',
    result: ref('OverrideChange'),
  },
  'DELETE consumers/{consumer}/overrides/{rule}': {
    id: 'removeOverride',
    tag: 'consumers',
    summary: 'Remove an override',
    result: ref('ConsumerSettings'),
  },
  'GET switches': {
    id: 'listSwitches',
    tag: 'switches',
    summary: 'Show the live switches',
    result: ref('Switches'),
  },
  'PUT switches/{rule}': {
    id: 'setSwitch',
    tag: 'switches',
    summary: 'Change the mode or the share of a rule',
    description: 'A rule of a limit by name is `<limit>/<rule>`, with the slash encoded as %2F.',
    result: ref('Switches'),
  },
  'DELETE switches/{rule}': {
    id: 'removeSwitch',
    tag: 'switches',
    summary: 'Let a rule follow the config again',
    result: ref('Switches'),
  },
  'PUT kill-switch': {
    id: 'setKillSwitch',
    tag: 'switches',
    summary: 'Turn all limits off',
    result: ref('Switches'),
  },
  'DELETE kill-switch': {
    id: 'removeKillSwitch',
    tag: 'switches',
    summary: 'Turn all limits on again',
    result: ref('Switches'),
  },
  'GET stats': { id: 'stats', tag: 'statistics', summary: 'Show what was decided', result: ref('Stats') },
  'GET stats/top': {
    id: 'topCallers',
    tag: 'statistics',
    summary: 'Show whom each rule has refused most',
    result: object({ since: time, rules: list(ref('RefusedCallers')) }),
  },
  'GET why/{caller}': {
    id: 'why',
    tag: 'statistics',
    summary: 'Say why a caller is refused, or that it is not',
    result: ref('Why'),
  },
  'GET tokens': {
    id: 'listTokens',
    tag: 'tokens',
    summary: 'List service tokens',
    result: page(ref('Token')),
  },
  'POST tokens': {
    id: 'createToken',
    tag: 'tokens',
    summary: 'Create a service token',
    result: ref('CreatedToken'),
  },
  'GET tokens/{id}': {
    id: 'showToken',
    tag: 'tokens',
    summary: 'Show a service token',
    result: ref('Token'),
  },
  'POST tokens/{id}/rotate': {
    id: 'rotateToken',
    tag: 'tokens',
    summary: 'Replace a service token by a new one',
    result: ref('RotatedToken'),
  },
  'GET audit': {
    id: 'audit',
    tag: 'audit',
    summary: 'Show who has changed what, newest first',
    result: page(ref('AuditEntry')),
  },
  'DELETE tokens/{id}': {
    id: 'revokeToken',
    tag: 'tokens',
    summary: 'Revoke a service token',
    description: REMOVED,
    result: object({ id: text, revoked: flag }),
  },
}

/** What the document says about a route. @throws Error for a route that the table lacks */
export function operationOf({ method, path }: { method: string; path: string }): Operation {
  const operation = OPERATIONS[`${method} ${path}`]
  if (!operation) throw new Error(`openapi-operations.ts has no ${method} ${path}.`)
  return operation
}

/**
 * Reads fields of a request's body that rules count by (`field:email`), such as the account that a login names. A Worker without such rules
 * does not carry this file.
 *
 * A body is evidence of its sender, so what an origin could read in another way has no value: a field that comes twice, in another spelling,
 * or also in the query or deeper in the body. Nor has an invalid or compressed body, or one of more than 8 kB. Requests without a value are
 * counted together. So a decoy does not give anyone a budget of its own.
 */
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config, GatewayRule } from '../../config/compile.ts'
import { readPart } from '../../config/identity-parts.ts'
import { createFieldDigest, KEY_SECRET, readKeySecrets } from '../../credentials/key-signature.ts'
import { type BodyHold, createBodyRoom } from '../../usage/body-room.ts'
import { declaredTypeOf, foreignCharsetOf } from '../../usage/body-type.ts'
import { concat } from '../../usage/concat.ts'
import { JsonScanner, OPEN_OBJECT } from '../../usage/json-scanner.ts'
import { readBeginning, resumeBody } from '../../usage/read-body.ts'
import { lengthOf, withBody } from '../../usage/with-body.ts'
import { BODY_TOO_MANY, BODY_TOO_SLOW } from './body-refusals.ts'
import type { Caller } from './caller.ts'
import type { DecidedRequest } from './decided-request.ts'
import { replyToGoneClient } from './forward.ts'
import type { Problem } from './problem.ts'

/** Digests of the fields of a request, by name. A field without a value has none. */
export type BodyFields = ReadonlyMap<string, string>

/** A request whose fields were read. */
export interface FieldsOfRequest {
  /** Decide and forward this request. */
  request: Request
  fields: BodyFields
  /** Why the request must not be decided. */
  refusal?: Problem
  /** Forwards `request` in place of the original. The end of the request frees the room of its body, which may not have been read. */
  forwarding(decided: Settling): Partial<Settling>
  /** The request was refused: lets the platform skip the rest of its body. */
  skip(): void
}

type Settling = Pick<DecidedRequest, 'forward' | 'finish'>

/** Reads the fields that the rules count by. Never rejects. @returns undefined if they count by none */
export type ReadFields = (
  request: Request,
  caller: Caller,
  rules: readonly GatewayRule[],
) => Promise<FieldsOfRequest | undefined>

/** A login has less than 1 kB. */
const MAX_FIELD_BODY_BYTES = 8192

/** Of all bodies that are being read. */
const ROOM_BYTES = 8_000_000

const FORM = /^application\/x-www-form-urlencoded\s*(?:;|$)/i

/**
 * @param variables with `SLUICE_KEY_SECRET`, whose first secret is the key of the digests
 * @throws ConfigError naming the variable if it is missing or not valid
 */
export function createFieldReader(
  { environment }: Pick<Config, 'environment'>,
  variables: Readonly<Record<string, unknown>>,
  timer: Timer = SYSTEM_TIMER,
): ReadFields {
  const digest = createFieldDigest(readKeySecrets(variables[KEY_SECRET])[0]!, environment)
  const room = createBodyRoom(ROOM_BYTES)

  async function digestsOf(texts: ReadonlyMap<string, string>): Promise<BodyFields> {
    const digests = new Map<string, string>()
    for (const [name, text] of texts) {
      const value = await digest(text)
      if (value !== undefined) digests.set(name, value)
    }
    return digests
  }

  return async (request, { credential, addressIdentity }, rules) => {
    const names = fieldsOf(rules)
    if (names.size === 0) return undefined
    const read = readerFor(request)
    if (!read) return withFields(request, new Map())
    const caller = credential?.digest ?? addressIdentity
    const hold = room.open(caller, credential?.isVerified ?? false, addressIdentity)
    const reader = (request.body as ReadableStream<Uint8Array>).getReader()
    const beginning = await readBeginning(reader, {
      ...{ maxBytes: MAX_FIELD_BODY_BYTES, timer, hold },
      see: () => true,
    })
    const { how, chunks } = beginning
    if (how === undefined) {
      hold.give()
      const bytes = concat(chunks)
      return withFields(withBody(request, bytes), await digestsOf(read(bytes, new Found(names))))
    }
    if (how === 'too-large') {
      const passing = { pass: (chunk: Uint8Array) => [chunk], end: () => [] }
      const { body, failed } = resumeBody(reader, beginning, { timer, hold }, passing)
      return withFields(withBody(request, body, lengthOf(request)), new Map(), { failed, hold })
    }
    hold.give()
    reader.cancel().catch(() => {})
    if (how === 'broken') return { ...withFields(request, new Map()), forwarding: () => GONE }
    return { ...withFields(request, new Map()), refusal: how === 'too-slow' ? BODY_TOO_SLOW : BODY_TOO_MANY }
  }
}

const GONE = { forward: async () => replyToGoneClient() }

/** @param passing of a body that passes only now */
function withFields(
  request: Request,
  fields: BodyFields,
  { failed: bodyFailed, hold }: { failed?: AbortSignal; hold?: BodyHold } = {},
): FieldsOfRequest {
  return {
    ...{ request, fields },
    forwarding: ({ forward: settle, finish }) => ({
      finish(ending) {
        hold?.give()
        finish(ending)
      },
      async forward(_, context, forward) {
        const copied = {
          ...context,
          ...{ copy: request, bodyFailed },
          adapt(settings: RequestInit) {
            if (bodyFailed) settings.signal = AbortSignal.any([settings.signal!, bodyFailed])
          },
        }
        return await (settle?.(request, copied, forward) ?? forward(request, copied))
      },
    }),
    skip() {
      hold?.give()
      if (bodyFailed) request.body?.cancel().catch(() => {})
    },
  }
}

/** The names of the fields that rules count by. */
function fieldsOf(rules: readonly GatewayRule[]): ReadonlySet<string> {
  const parts = rules.flatMap(({ by }) => by.map(readPart))
  return new Set(parts.flatMap(({ part, name }) => (part === 'field' ? [name] : [])))
}

type Read = (bytes: Uint8Array, found: Found) => Map<string, string>

/** @returns undefined if the body cannot be read, or is too large */
function readerFor(request: Request): Read | undefined {
  const { headers, method, body, url } = request
  if (!body || method === 'GET' || method === 'HEAD') return undefined
  if (lengthOf(request) > MAX_FIELD_BODY_BYTES) return undefined
  const type = headers.get('content-type')
  const isEncoded = (headers.get('content-encoding') ?? 'identity') !== 'identity'
  if (isEncoded || foreignCharsetOf(type, UTF_8)) return undefined
  const isJson = declaredTypeOf(type) === 'json'
  if (!isJson && !FORM.test(type ?? '')) return undefined
  return (bytes, found) => {
    // Servlets take a parameter of the query before one of the body.
    found.doubt(new URL(url).search)
    return isJson ? readJson(bytes, found) : readForm(bytes, found)
  }
}

/** In Latin-1, which servlets and Express read, the bytes of one letter of UTF-8 are several letters. */
const UTF_8 = new Set(['utf-8', 'utf8', 'us-ascii', 'ascii'])

/**
 * Many origins read JSON or a form whatever the type says, so a body that is both has no value.
 * @returns the values of members of the root that are texts or whole numbers. None if the body is not JSON
 */
function readJson(bytes: Uint8Array, found: Found): Map<string, string> {
  found.doubt(new TextDecoder().decode(bytes))
  const json = new JsonScanner({
    begin: (first, depth) => {
      isObject ||= depth === 0 && first === OPEN_OBJECT
      return depth === 1 ? MAX_FIELD_BODY_BYTES : 0
    },
    end(depth, at, { text }) {
      const name = json.names[depth - 1]
      if (depth === 0 || name === undefined) return
      const isSure = depth === 1 && isObject
      found.add(name, isSure ? textOf(text, bytes[at - 1] === QUOTE) : undefined)
    },
  })
  let isObject = false
  json.feed(bytes)
  json.end()
  return json.problem === undefined ? found.values() : new Map()
}

const QUOTE = 34

/** @param text of a string, between its quotes, or of a number or word; empty for lists and objects */
function textOf(text: string, isString: boolean): string | undefined {
  try {
    const value: unknown = JSON.parse(isString ? `"${text}"` : text)
    return typeof value === 'string' || Number.isSafeInteger(value) ? String(value) : undefined
  } catch {
    return undefined
  }
}

/**
 * Some parsers take `;` for `&`. No client sends it as it is: the URL Standard writes it as `%3B`, as it does a bracket with which JSON begins.
 */
function readForm(bytes: Uint8Array, found: Found): Map<string, string> {
  const text = new TextDecoder().decode(bytes)
  if (text.includes(';') || /^\s*[[{]/.test(text)) return new Map()
  for (const [name, value] of new URLSearchParams(text)) found.add(name, value)
  return found.values()
}

/** The fields of one body, as far as no parser could read another value. */
class Found {
  readonly #names: ReadonlyMap<string, string>
  readonly #values = new Map<string, string | undefined>()

  constructor(names: ReadonlySet<string>) {
    this.#names = new Map([...names].map(name => [folded(name), name]))
  }

  /** @param written the name as it is written; empty if it is too long to be read */
  add(written: string, value: string | undefined): void {
    // Rails reads `session[email]` as well, and Rack takes `[email]` for `email`.
    for (const part of new Set([written, ...written.split(/[[\].]+/)])) {
      const name = this.#names.get(folded(part))
      if (name === undefined) continue
      const isSure = written === name && !this.#values.has(name)
      this.#values.set(name, isSure ? value : undefined)
    }
    if (written === '') for (const name of this.#names.values()) this.#values.set(name, undefined)
  }

  /** The fields of this text have no value, as it is a form that only some origins read. */
  doubt(form: string): void {
    for (const [name] of new URLSearchParams(form.replaceAll(';', '&')))
      if (name !== '') this.add(name, undefined)
  }

  values(): Map<string, string> {
    const known = [...this.#values].filter((entry): entry is [string, string] => entry[1] !== undefined)
    return new Map(known)
  }
}

/**
 * Folds the name of a field as the parsers do that fold most: Go's takes `Email` for `email`; PHP drops spaces before a name, and what follows
 * a zero byte, takes `user.email` for `user_email`, and begins a list at a bracket, as Rack does. Some drop bytes that are not UTF-8, and halves
 * of a character.
 */
const folded = (name: string) =>
  name
    .split('\0', 1)[0]!
    .replace(/[\p{C}\uFFFD]/gu, '')
    .trim()
    .replace(/\[\]$/, '')
    .replace(/[^\p{L}\p{N}]+/gu, '_')
    .replace(/_$/, '')
    .toUpperCase()
    .toLowerCase()

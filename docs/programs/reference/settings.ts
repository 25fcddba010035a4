/** The settings of a config: what the schema says of each, and what its doc comment says. */
import * as v from 'valibot'
import { jwtSchema } from '../../../src/config/check/jwt-schema.ts'
import { configSchema } from '../../../src/config/check/schema.ts'
import type { Config } from '../../../src/config/compile.ts'
import type { ConfigError, Mistake } from '../../../src/config/config-error.ts'
import { applyVariables } from '../../../src/config/environment.ts'
import { type Member, type Shape, withDocComments } from './doc-comments.ts'
import { type PartRow, readParts } from './identity-parts.ts'

export interface Setting {
  name: string
  isRequired: boolean
  /** What can be written, in Markdown. */
  value: string
  /** From the doc comment, in Markdown; empty: it says none. */
  default: string
  /** The rest of the doc comment; empty: there is none. */
  meaning: string
  /** If the value is an object, or a list or a record of objects: the settings of the object. */
  settings: readonly Setting[]
  /** If the objects have variants: the settings of each variant, by the value that distinguishes it. */
  variants: ReadonlyMap<string, readonly Setting[]>
}

/** The schemas of valibot are plain data. This is the part of that data that is read here. */
interface Schema {
  type: string
  message?: unknown
  wrapped?: Schema
  item?: Schema
  value?: Schema
  literal?: unknown
  options?: readonly unknown[]
  entries?: Record<string, Schema>
  pipe?: readonly { kind: string; type: string; requirement?: unknown; message?: unknown }[]
  getter?(input: unknown): Schema
}

export function readSettings(): {
  config: readonly Setting[]
  jwt: ReadonlyMap<string, readonly Setting[]>
  variables: readonly Setting[]
  parts: readonly PartRow[]
} {
  return withDocComments(shapesOf => {
    const issuers = shapesOf('config/check/jwt-schema', 'JwtInput')
    const variants = ['jwks', 'secret', 'access'].map(place => {
      const { getter } = jwtSchema as unknown as Required<Schema>
      return [place, settingsOf(getter({ [place]: '' }), shapesWith(place, issuers))] as const
    })
    return {
      config: settingsOf(configSchema as unknown as Schema, shapesOf('config/check/schema', 'ConfigInput')),
      jwt: new Map(variants),
      variables: variablesOf(shapesOf('config/environment', 'Environment')),
      parts: readParts(shapesOf('config/identity-parts', 'IdentityParts')),
    }
  })
}

function variablesOf([shape]: readonly Shape[]): Setting[] {
  return [...shape!].map(([name, member]) => ({
    name,
    isRequired: missing().some(({ path }) => path === name),
    value: member.type.includes('string') ? 'text' : 'binding',
    ...commentOf([member]),
    settings: [],
    variants: new Map(),
  }))
}

/** The mistakes of an empty environment: one for each variable that is required. */
function missing(): readonly Mistake[] {
  try {
    applyVariables({} as Config, {})
    return []
  } catch (error) {
    return (error as ConfigError).mistakes
  }
}

/** Puts the shapes with the key first: of several doc comments of a setting, the first one is used. */
function shapesWith(key: string, shapes: readonly Shape[]): readonly Shape[] {
  return [...shapes].sort((a, b) => Number(b.has(key)) - Number(a.has(key)))
}

function settingsOf({ entries = {} }: Schema, shapes: readonly Shape[]): Setting[] {
  return Object.entries(entries).map(([name, entry]) => {
    const members = shapes.flatMap(shape => shape.get(name) ?? [])
    const schema = bare(entry)
    const object = objectIn(schema)
    const inner = members.flatMap(member => member.shapes())
    return {
      name,
      isRequired: entry.type !== 'optional',
      value: kindOf(schema),
      ...commentOf(members),
      settings: object?.entries ? settingsOf(object, inner) : [],
      variants: new Map(object?.type === 'variant' ? variantsOf(object, inner) : []),
    }
  })
}

function variantsOf({ options = [] }: Schema, shapes: readonly Shape[]): [string, Setting[]][] {
  return (options as Schema[]).map(option => {
    const name = String(option.entries!.algorithm!.literal)
    const isOwn = (shape: Shape) => shape.get('algorithm')?.type.includes(`"${name}"`) ?? false
    const own = [...shapes].sort((a, b) => Number(isOwn(b)) - Number(isOwn(a)))
    return [name, settingsOf(option, own)]
  })
}

function commentOf(members: readonly Member[]): Pick<Setting, 'default' | 'meaning'> {
  const comment = members.find(member => member.comment)?.comment ?? ''
  const text = comment.replace(/\n(?!- )\s*/g, ' ').replace(/\n- /g, '<br>- ')
  // As in `cloudflare` (default), (default `'30s'`), and Default: none.
  const [, among] = /`([^`]+)` \(default\)/.exec(text) ?? []
  if (among) return { default: code(among), meaning: text.replace(' (default)', '') }
  const [all = '', inParentheses, atTheEnd] = / \(default:? (.*?)\)|(?:^| )Default: (.*)\.$/s.exec(text) ?? []
  return { default: inParentheses ?? atTheEnd ?? '', meaning: text.replace(all, '').replace(/^ /, '') }
}

/** The schema itself, without its wrappers for optional settings, and without the checks that run before it. */
function bare(schema: Schema): Schema {
  if (schema.type === 'optional') return bare(schema.wrapped!)
  if (schema.type === 'lazy') {
    const [text, object] = [undefined, {}].map(input => bare(schema.getter!(input))) as [Schema, Schema]
    const isEither = object.type === 'strict_object' && !objectIn(text)
    return isEither ? ({ type: 'union', options: [text, object] } as Schema) : text
  }
  const last = schema.pipe?.findLast(({ kind }) => kind === 'schema')
  return last && last !== schema.pipe?.[0] ? bare(last as Schema) : schema
}

/** The schema of an object: the given schema, or the object in its list, its record or its union. */
function objectIn(schema: Schema): Schema | undefined {
  switch (schema.type) {
    case 'strict_object':
    case 'variant':
      return schema
    case 'array':
      return objectIn(bare(schema.item!))
    case 'record':
      return objectIn(bare(schema.value!))
    case 'union':
      return (schema.options as Schema[]).map(option => objectIn(bare(option))).find(Boolean)
    default:
      return undefined
  }
}

function kindOf(wrapped: Schema): string {
  const schema = bare(wrapped)
  switch (schema.type) {
    case 'boolean':
      return '`true` or `false`'
    case 'literal':
      return code(schema.literal)
    case 'picklist':
      return schema.options!.map(code).join(', ')
    case 'number':
      return numberOf(schema)
    case 'never':
    case 'string':
    case 'custom':
      return textOf(schema)
    case 'array':
      return listOf(schema)
    case 'record':
      return `by name: ${kindOf(schema.value!)}`
    case 'union':
      return (schema.options as Schema[]).map(kindOf).join(', or ')
    case 'strict_object':
    case 'variant':
      return 'object'
    default:
      throw new Error(
        `A setting is a ${schema.type}: docs/programs/reference/settings.ts does not know how to tell that.`,
      )
  }
}

function listOf({ item, pipe = [] }: Schema): string {
  const most = pipe.find(({ type }) => type === 'max_length')?.requirement
  const inner = kindOf(item!)
  return `list: ${inner}${most === undefined ? '' : `; at most ${most}`}`
}

function numberOf({ pipe = [] }: Schema): string {
  const bound = (type: string) =>
    Number(pipe.find(step => step.type === type)?.requirement).toLocaleString('en')
  const kind = pipe.some(({ type }) => type === 'integer') ? 'whole number' : 'number'
  return `${kind}, ${bound('min_value')} to ${bound('max_value')}`
}

/** Kinds of values that the page words differently than the messages. */
const KINDS: Record<string, string> = {
  origin: "http(s) URL, or `'route'`",
  'URL of a key set': 'https URL',
  'URL of an Access team': 'https URL',
  'origin of a web page': 'origin, as in `https://app.example.com`',
  'identity part': '[part](#by)',
  issuer: 'text',
  audience: 'text',
  credential: 'name of a credential',
}

/** The kind of a value, taken from the message for a wrong one: `is not a duration. …`. */
function textOf(schema: Schema): string {
  const message = v.safeParse(schema as unknown as v.GenericSchema, 0).issues?.[0].message ?? ''
  const [, kind = ''] = /^is (?:not (?:an?|the) )?(.+?)\.(?: |$)/.exec(message) ?? []
  if (!kind && schema.type === 'string') return 'text'
  const range = capturedFrom(schema, /is out of range\. Use a duration from (.+)\.$/)
  if (range) return `${kind}, ${range.replaceAll(/'.+?'/g, '`$&`')}`
  const letters = capturedFrom(schema, /Use (\d+ to \d+ .+?)(?:, as in .*)?\.$/)
  const isName = letters === "1 to 63 lowercase letters, digits, '-' and '_'"
  return `${KINDS[kind] ?? kind}${letters && !isName ? `: ${letters}` : ''}`
}

/** The text that the pattern captures in the first message that it matches. */
function capturedFrom({ pipe = [] }: Schema, pattern: RegExp): string | undefined {
  for (const { message } of pipe) {
    const [, found] = pattern.exec(String(message)) ?? []
    if (found) return found
  }
  return undefined
}

function code(value: unknown): string {
  return typeof value === 'string' ? `\`'${value}'\`` : `\`${value}\``
}

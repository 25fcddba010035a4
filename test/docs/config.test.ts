/** Checks docs/config.md: its tables match the schema, its examples are valid configs, and its defaults are the real ones. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type Row, readTables, withTables } from '../../docs/programs/reference/make-reference.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { defineConfig } from '../../src/config/define.ts'
import { jwt } from '../../src/credentials/jwt.ts'

const PAGE = readFileSync(new URL('../../docs/config.md', import.meta.url), 'utf8')
const tables = readTables()
const rows = [...tables.settings].flatMap(([table, rows]) =>
  rows.map(row => [`${table}: ${row.path}`, row] as const),
)

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '10s' }
const CONFIG = { origin: 'https://api.example.com', rules: [RULE] }
const RULE_OF_ORIGIN = { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 400 }
const SHEDDING = {
  classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'other' }],
  fleetUsage: { capacity: 400 },
  workerUtilization: { signals: ['header', 'push'] },
}
const ISSUER = { issuer: 'https://issuer.example.com/', audience: 'api' }
const JWKS = { jwks: 'https://issuer.example.com/jwks', algorithms: ['RS256' as const], ...ISSUER }

describe('the page', () => {
  it('has the tables that are generated from the schema and the doc comments', () => {
    expect(PAGE === withTables(PAGE, tables), 'docs/config.md is stale: npm run reference').toBe(true)
    const shown = [...PAGE.matchAll(/<!-- table: (.+?) -->/g)].map(([, name]) => name)
    expect(shown.sort()).toEqual([...tables.settings.keys(), 'by'].sort())
  })

  it('links to sections that exist', () => {
    const sections = [...PAGE.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
      title!.toLowerCase().replaceAll(/[.,]/g, '').replaceAll(' ', '-'),
    )
    for (const [, anchor] of PAGE.matchAll(/\]\(#(.+?)\)/g)) expect(sections).toContain(anchor)
  })

  const blocks = [...PAGE.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!)
  it.each(blocks)('shows a config: %s', code => {
    const body = code.replace(/^import .*\n/gm, '').replace('export default', 'return')
    const config = new Function('defineConfig', 'jwt', body)(defineConfig, jwt)
    expect(checkedConfig(config).rules.length).toBeGreaterThan(0)
  })
  expect(blocks).toHaveLength(2)

  it('lists the identity parts that `by` accepts', () => {
    const message = mistakeOf({ ...CONFIG, rules: [{ ...RULE, by: '?' }] })
    for (const { written, meaning } of tables.parts) {
      expect(message).toContain(written)
      expect(meaning, `${written} needs a doc comment`).not.toBe('')
      expect(PAGE).toContain(`| \`${written}\` | ${meaning} |`)
    }
  })
})

describe('a setting', () => {
  const without = (key: 'value' | 'meaning' | 'default', among = rows) =>
    among.filter(([, row]) => row[key] === '').map(([name]) => name)

  it('has a doc comment above it in its type, and a value', () => {
    expect(without('meaning')).toEqual([])
    expect(without('value')).toEqual([])
  })

  const optional = rows.filter(([, row]) => !row.isRequired && row.settings.length === 0)

  it('that is optional documents its default, as (default `…`) or Default: …', () => {
    expect(without('default', optional)).toEqual([])
  })

  it('that is left out has the documented default', () => {
    const literals = rows.flatMap(([name, row]) => {
      const text = /^`([^`]+)`/.exec(row.default)?.[1]
      // Skips names of headers, and defaults that come from another setting or from the environment.
      return text && !/[A-Z]\w+-|: |^origin$|^environment$/.test(text) ? [[name, row, text] as const] : []
    })
    for (const [name, row, text] of literals) {
      const value = new Function('limit', 'credentials', `return ${text}`)(10, { accept: ['api-key'] })
      for (const config of configsFor(name, row)) {
        expect(checkedConfig(config(row.path, value)), name).toEqual(checkedConfig(config()))
      }
    }
    // Most optional settings have such a default. A much smaller number means that the pattern above no longer finds them.
    expect(literals.length).toBeGreaterThan(optional.length / 2)
  })
})

/** Makes a config with a setting or without it. */
type Make = (path?: string, value?: unknown) => unknown

function configsFor(name: string, { of = [''], path: place }: Row): Make[] {
  const [table = ''] = name.split(':')
  switch (table) {
    case 'config':
      return [(path, value) => put(CONFIG, path, value)]
    case 'rules':
      return [(path, value) => ({ ...CONFIG, rules: [put(RULE, path, value)] })]
    case 'algorithms':
      return of.map(algorithm => (path, value) => {
        const { period: _, ...rule } = { ...RULE, algorithm }
        const period = algorithm === 'fixed-window' ? 'day' : '10s'
        const whole = algorithm === 'concurrency' ? rule : { ...rule, period }
        return { ...CONFIG, rules: [put(whole, path, value)] }
      })
    case 'limits':
      return [
        (path, value) => {
          const rule = { name: 'a', algorithm: 'gcra', limit: 1, period: '1s' }
          return { ...CONFIG, limits: { a: [put(rule, path, value)] } }
        },
      ]
    case 'routes':
      return [
        (path, value) => ({ ...CONFIG, routes: [put({ name: 'b', match: { path: '/b' } }, path, value)] }),
      ]
    case 'credentials.jwt':
      return [
        (path, value) => ({
          ...CONFIG,
          credentials: { jwt: { auth0: jwt(put({ claims: {}, ...JWKS }, path, value) as typeof JWKS) } },
        }),
      ]
    case 'adaptive':
      return [
        (path, value) => ({
          ...CONFIG,
          rules: [{ ...RULE_OF_ORIGIN, adaptive: put({}, path, value) }],
        }),
      ]
    case 'shedding':
      return [(path, value) => ({ ...CONFIG, shedding: put(SHEDDING, path, value) })]
    case 'cors':
      return [(path, value) => ({ ...CONFIG, cors: put({ origins: '*' }, path, value) })]
    case 'units': {
      const source = place.startsWith('actual.keep') ? { header: 'x-cost' } : { usage: 'openai' }
      return [(path, value) => ({ ...CONFIG, units: { a: put({ actual: source }, path, value) } })]
    }
    case 'credentials':
      return [(path, value) => ({ ...CONFIG, credentials: put({ opaqueKeys: {} }, path, value) })]
    default:
      return [(path, value) => ({ ...CONFIG, [table]: put({}, path, value) })]
  }
}

function put(object: Record<string, unknown>, path: string | undefined, value: unknown): object {
  if (path === undefined) return object
  const [key = '', ...rest] = path.split('.')
  if (rest.length === 0) return { ...object, [key]: value }
  return { ...object, [key]: put((object[key] ?? {}) as Record<string, unknown>, rest.join('.'), value) }
}

function mistakeOf(config: unknown): string {
  try {
    checkedConfig(config)
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

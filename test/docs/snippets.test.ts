/** README.md and the pages show settings that the gateway accepts, and replies that it sends. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { useGateway } from '../support/gateway.ts'
import { PAGES } from '../support/pages.ts'

const ROOT = new URL('../../', import.meta.url)
const read = (path: string) => readFileSync(new URL(path, ROOT), 'utf8')
const blocksOf = (path: string, language = 'ts') =>
  [...read(path).matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, text]) => text!)

/** The settings in a block. */
const settingsIn = (text: string) => new Function('jwt', `return ({ ${text} })`)(jwt)
const ruleIn = (path: string): RuleInput =>
  new Function(`return (${blocksOf(path).find(text => text.startsWith('{'))})`)()

const PLANS = ['free', 'pro', 'internal']

describe('README.md shows', () => {
  it('a rule', () => {
    const { rules } = checkedConfig({ origin: 'route', plans: PLANS, rules: [ruleIn('README.md')] })
    expect(rules.map(({ limit }) => limit)).toEqual([20, 1000])
  })
})

describe('the reply to a refused request', () => {
  const gateway = useGateway()

  it.each([
    ['README.md', ruleIn('README.md'), { method: 'POST' }],
    ['docs/replies.md', settingsIn(blocksOf('docs/rules.md')[0]!).rules[0], {}],
  ] as const)('is the one that %s shows', async (page, rule, more) => {
    const block = blocksOf(page, 'http')[0]!
    const [, shownSeconds = ''] = /^Retry-After: (\d+)$/m.exec(block)!
    const app = gateway.app({ plans: PLANS, rules: [rule] })
    const init = { ...more, key: await gateway.key('acme') }
    let response = await app('/reports/7', init)
    // The window may end meanwhile.
    for (let i = 0; i < 500 && response.status !== 429; i++) response = await app('/reports/7', init)
    const seconds = response.headers.get('retry-after')!
    const text = block.replaceAll(new RegExp(`\\b${shownSeconds}\\b`, 'g'), seconds)
    const [head, body] = text.split('\n\n') as [string, string]
    const [status, ...headers] = head.split('\n')
    expect(status).toBe(`HTTP/1.1 ${response.status} Too Many Requests`)
    expect(headers.length).toBeGreaterThan(3)
    for (const line of headers) {
      const [name, value] = line.split(': ') as [string, string]
      expect([name, response.headers.get(name)]).toEqual([name, value])
    }
    expect(await response.json()).toEqual(JSON.parse(body))
  })
})

describe('the pages show', () => {
  it('a rule', () => {
    const { rules } = checkedConfig({ origin: 'route', plans: PLANS, rules: [ruleIn('docs/rules.md')] })
    expect(rules.map(({ limit }) => limit)).toEqual([10, 100])
  })

  it('credentials, routes and lists', () => {
    const settings = settingsIn(
      blocksOf('docs/credentials.md').find(text => text.includes('credentials: {'))!,
    )
    const config = checkedConfig({ origin: 'route', plans: ['free', 'pro'], ...settings })
    expect(config.routes.map(({ name }) => name)).toEqual(['reports', 'public', 'admin', 'status'])
    expect([...config.credentials.jwt.keys()]).toEqual(['auth0', 'staff'])
  })

  it('rules with different fallbacks for a store that does not answer', () => {
    const settings = settingsIn(blocksOf('docs/failure.md')[0]!)
    const { rules } = checkedConfig({ origin: 'route', ...settings })
    expect(rules.map(({ onStoreFailure }) => onStoreFailure)).toEqual(['local', 'closed'])
  })

  it('limits by name', () => {
    const text = blocksOf('docs/limits-by-name.md').find(block => block.includes('limits: {'))!
    const config = new Function(
      'defineConfig',
      text.replace(/^import .*\n/gm, '').replace('export default', 'return'),
    )
    expect(checkedConfig(config((input: unknown) => input)).limits.get('zendesk')).toHaveLength(2)
  })

  it('no list that blocks callers of unknown country', () => {
    for (const path of PAGES)
      expect([path, read(path).match(/countries: \[[^\]]*'XX'/)]).toEqual([path, null])
  })
})

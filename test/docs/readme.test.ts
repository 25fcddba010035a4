/** The configs that the README shows are ones that the gateway takes. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { jwt } from '../../src/credentials/jwt.ts'

const page = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')
const blocks = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, text]) => text!)

/** What stands in a block as settings, or as one rule. */
const settingsIn = (text: string) => new Function('jwt', `return ({ ${text} })`)(jwt)

describe('the README shows', () => {
  it('a rule', () => {
    const rule = new Function(`return (${blocks.find(text => text.startsWith('{'))})`)()
    const config = { origin: 'route', plans: ['free', 'pro', 'internal'], rules: [rule] }
    expect(checkedConfig(config).rules.map(({ limit }) => limit)).toEqual([10, 100])
  })

  it('credentials, routes and lists', () => {
    const settings = settingsIn(blocks.find(text => text.includes('credentials: {'))!)
    const config = checkedConfig({ origin: 'route', plans: ['free', 'pro'], ...settings })
    expect(config.routes.map(({ name }) => name)).toEqual(['reports', 'public', 'admin', 'status'])
    expect([...config.credentials.jwt.keys()]).toEqual(['auth0', 'staff'])
  })

  it('limits by name', () => {
    const settings = settingsIn(blocks.find(text => text.includes('limits: {'))!.replace(/^\/\/.*$/m, ''))
    const rules = [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }]
    expect(checkedConfig({ origin: 'route', rules, ...settings }).limits.get('zendesk')).toHaveLength(2)
  })
})

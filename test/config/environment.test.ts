import { describe, expect, it } from 'vitest'
import { applyVariables } from '../../src/config/environment.ts'
import { configOf } from '../support/engines.ts'

const config = configOf({ rules: [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }] })
const ENV = { UPSTASH_REDIS_REST_URL: 'https://eu1.upstash.io', UPSTASH_REDIS_REST_TOKEN: 'secret-token' }

describe('a set of environment variables', () => {
  it('adds the store, and an origin that overrides that of the config', () => {
    const settings = applyVariables(config, { ...ENV, ORIGIN_URL: 'https://staging.example.com' })
    expect(settings).toMatchObject({
      url: ENV.UPSTASH_REDIS_REST_URL,
      token: 'secret-token',
      origin: 'https://staging.example.com',
    })
    expect(applyVariables(config, ENV).origin).toBe('http://origin.test')
  })

  it.each([
    [{}, ['UPSTASH_REDIS_REST_URL: is missing', 'UPSTASH_REDIS_REST_TOKEN: is missing']],
    [
      { ...ENV, UPSTASH_REDIS_REST_URL: 'redis://x:secret-token@y' },
      [
        'UPSTASH_REDIS_REST_URL: is not an http or https URL without credentials. On Workers: npx wrangler secret put',
      ],
    ],
    ...[
      ...[
        'https://$u:secret-token@y',
        'https://x:secret-token@y',
        'https://.secret-token',
        'https:secret-token',
      ],
      ...['https:\\\\secret-token', 'secret-token', 'https://secret token'],
    ].map((url): [object, string[]] => [
      { ...ENV, UPSTASH_REDIS_REST_URL: url },
      ['UPSTASH_REDIS_REST_URL: is not an http or https URL'],
    ]),
    [
      { ...ENV, UPSTASH_REDIS_REST_TOKEN: ' ' },
      [
        'UPSTASH_REDIS_REST_TOKEN: is missing. On Workers: npx wrangler secret put UPSTASH_REDIS_REST_TOKEN; for wrangler dev: a line in .dev.vars',
      ],
    ],
    [{ ...ENV, SLUICE_ENVIRONMENT: 'Live' }, ['SLUICE_ENVIRONMENT: is not a valid name']],
    [{ ...ENV, ORIGIN_URL: 'nowhere' }, ['ORIGIN_URL: is not valid. Use an http or https URL']],
  ])(
    'with a mistake (%#) is refused with the name of the variable and without the token',
    (env, messages) => {
      const refused = () => applyVariables(config, env)
      for (const message of messages) expect(refused).toThrow(message)
      expect(refused).not.toThrow('secret-token')
    },
  )
})

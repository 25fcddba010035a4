import { describe, expect, it } from 'vitest'
import { ConfigError } from '../../src/config/config-error.ts'
import { applyVariables, type StoreAddress } from '../../src/config/environment.ts'
import { withHintsForNode } from '../../src/config/environment-hints.ts'
import { configOf } from '../support/engines.ts'

const config = configOf({ rules: [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }] })

function mistakesOf(variables: StoreAddress & { SLUICE_ENVIRONMENT?: string }): string[] {
  try {
    applyVariables(config, variables)
  } catch (error) {
    const hinted = withHintsForNode(error, variables)
    expect(hinted).toBeInstanceOf(ConfigError)
    return (hinted as ConfigError).mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
  return []
}

describe('hints for a shell', () => {
  it('say what to export if both variables are missing, and how to use a Redis of your own', () => {
    expect(mistakesOf({})).toEqual([
      'UPSTASH_REDIS_REST_URL: is missing. For a Redis of your own, set REDIS_URL in its place: export REDIS_URL=redis://127.0.0.1:6379. ' +
        'For a database at Upstash, set it to the REST URL: export UPSTASH_REDIS_REST_URL=https://….upstash.io',
      'UPSTASH_REDIS_REST_TOKEN: is missing. With REDIS_URL it is not needed. Else set it to the REST token of the database: export UPSTASH_REDIS_REST_TOKEN=…',
    ])
  })

  it.each(['redis://default:secret@redis.test:6379', ' rediss://:secret@redis.test', 'REDIS://h'])(
    'detect the URL of a Redis, and never quote it: %s',
    url => {
      const [mistake] = mistakesOf({ UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: 't' })
      expect(mistake).toBe(
        'UPSTASH_REDIS_REST_URL: is the URL of a Redis server, not of its REST API. Unset it, and set REDIS_URL to that URL.',
      )
    },
  )

  it('are added to the message about any other URL, and leave other mistakes unchanged', () => {
    const variables = { UPSTASH_REDIS_REST_URL: 'localhost:6379', UPSTASH_REDIS_REST_TOKEN: 't' }
    expect(mistakesOf({ ...variables, SLUICE_ENVIRONMENT: 'Live' })).toEqual([
      expect.stringContaining(
        'is not an http or https URL without credentials. For a Redis of your own, set REDIS_URL ',
      ),
      'SLUICE_ENVIRONMENT: is not a valid name. Use 1 to 16 lowercase letters and digits.',
    ])
  })
})

it.each([new Error('x'), undefined, new ConfigError([{ path: 'rules', message: 'is missing.' }])])(
  'withHintsForNode returns any other error unchanged: %s',
  error => {
    expect(withHintsForNode(error)).toBe(error)
  },
)

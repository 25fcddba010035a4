/** The bridge reaches Redis by TLS (`rediss://`), and only if it can verify the certificate of Redis. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { hasOpenssl, makeCertificates, TLS_SETTINGS } from '../support/certificates.ts'
import { environmentWith, type Result, runProcess, SLUICE } from '../support/command-line.ts'
import { freePort } from '../support/free-port.ts'
import { PATIENT } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const TOKEN = 'a token for tests'

const title = hasRedisServer && hasOpenssl ? '' : ' (needs redis-server and openssl)'

describe.skipIf(title)(`npx sluicegate bridge, with a Redis that has TLS${title}`, () => {
  let redis: RedisProcess
  let tlsPort: number
  const running: ReturnType<typeof spawn>[] = []

  beforeAll(async () => {
    tlsPort = await freePort()
    const settings = { ...TLS_SETTINGS, 'tls-port': String(tlsPort) }
    redis = await startRedisProcess(settings, makeCertificates)
  })
  afterAll(() => redis?.close())
  afterEach(() => {
    for (const child of running.splice(0)) child.kill('SIGKILL')
  })

  const fileOf = (authority: string) => join(redis.directory, `${authority}.pem`)

  /** Runs a bridge that does not start. Node reads NODE_EXTRA_CA_CERTS only when a process starts. */
  const runBridge = (url: string, authority?: string): Promise<Result> =>
    runProcess(['bridge', '--redis', url, '--token', TOKEN, '--port', '0'], {
      NODE_EXTRA_CA_CERTS: authority && fileOf(authority),
    })

  /** @returns the URL of the bridge */
  async function startBridge(url: string, authority: string): Promise<string> {
    const env = environmentWith({ NODE_EXTRA_CA_CERTS: fileOf(authority) })
    const args = [SLUICE, 'bridge', '--redis', url, '--token', TOKEN, '--port', '0']
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
    running.push(child)
    let output = ''
    child.stdout.on('data', data => {
      output += data
    })
    await expect.poll(() => output, PATIENT).toMatch(/ready on \S+/)
    return /ready on (\S+)/.exec(output)![1]!
  }

  it('limits over the encrypted connection if NODE_EXTRA_CA_CERTS names the authority', async () => {
    await redis.send('ACL', 'SETUSER', 'app', 'on', '>p@ss:word', '~*', '+@all')
    const url = `rediss://app:${encodeURIComponent('p@ss:word')}@localhost:${tlsPort}`
    const limiter = createLimiter(
      {
        store: { deadline: '20s' },
        limits: {
          calls: [
            { name: 'one', algorithm: 'fixed-window', limit: 1, period: '300d', onStoreFailure: 'closed' },
          ],
        },
      },
      {
        env: { UPSTASH_REDIS_REST_URL: await startBridge(url, 'authority'), UPSTASH_REDIS_REST_TOKEN: TOKEN },
      },
    )
    const decisions = [await limiter.limit('calls'), await limiter.limit('calls')]
    expect(decisions.map(({ allowed, degraded }) => [allowed, degraded])).toEqual([
      [true, undefined],
      [false, undefined],
    ])
    expect(String(await redis.send('KEYS', '*'))).toBe('sluice:{l:calls}:state')
  })

  it.each([
    ['is not known', undefined],
    ['is another one', 'other-authority'],
  ])('refuses a certificate whose authority %s, and says what to do', async (_, authority) => {
    const { code, stdout, stderr } = await runBridge(`rediss://:secret@localhost:${tlsPort}`, authority)
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(
      new RegExp(
        `^Redis did not answer at localhost:${tlsPort}: [^.]*certificate[^.]*\\. If you trust the authority .* set NODE_EXTRA_CA_CERTS to the file with the certificate of that authority\\.\n$`,
      ),
    )
    expect(stderr).not.toContain('secret')
  })

  it('refuses a certificate of another host', async () => {
    const { code, stderr } = await runBridge(`rediss://127.0.0.1:${tlsPort}`, 'authority')
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(
        `^Redis did not answer at 127\\.0\\.0\\.1:${tlsPort}: Hostname/IP does not match certificate's altnames: .* Check`,
      ),
    ])
  })
})

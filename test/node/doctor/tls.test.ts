/** `npx sluicegate doctor` on a Redis with TLS: it names a mistake of the certificate, with the fix. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasOpenssl, makeCertificates, TLS_SETTINGS } from '../../support/certificates.ts'
import { environmentWith } from '../../support/command-line.ts'
import { found } from '../../support/examinations.ts'
import { freePort } from '../../support/free-port.ts'
import { type RedisProcess, startRedisProcess } from '../../support/redis-process.ts'
import { hasRedisServer } from '../../support/servers.ts'

const SLUICE = fileURLToPath(new URL('../../../src/node/cli/sluice.ts', import.meta.url))

const title = hasRedisServer && hasOpenssl ? '' : ' (needs redis-server and openssl)'

describe.skipIf(title)(`a Redis with TLS${title}`, () => {
  let redis: RedisProcess
  let port: number
  beforeAll(async () => {
    port = await freePort()
    redis = await startRedisProcess({ ...TLS_SETTINGS, 'tls-port': String(port) }, makeCertificates)
  })
  afterAll(async () => await redis?.close())

  const use = async (name: string, clients = 'no') => {
    const files = ['tls-cert-file', `${name}.pem`, 'tls-key-file', `${name}.key`]
    await redis.send('CONFIG', 'SET', ...files, 'tls-auth-clients', clients)
  }

  /** In a process of its own, because Node reads NODE_EXTRA_CA_CERTS only when it starts. */
  async function examine(authority: string, url = `rediss://localhost:${port}`) {
    const env = environmentWith({ NODE_EXTRA_CA_CERTS: join(redis.directory, `${authority}.pem`) })
    const args = [SLUICE, 'doctor', '--json', '--store', url]
    const { stdout } = await promisify(execFile)(process.execPath, args, { env }).catch(failed => failed)
    expect(stdout).not.toMatch(/localhost|planted/)
    const { verdict, checks } = JSON.parse(stdout)
    const by = Object.fromEntries(checks.map((each: { name: string }) => [each.name, each]))
    return { verdict, by }
  }

  it('works, if the certificate is valid', async () => {
    await use('redis')
    const { by } = await examine('authority')
    expect(by['store-tls']).toMatchObject(found('ok', 'TLSv1.3, with a certificate that is valid.'))
    expect(by.rules.verdict).toBe('ok')
  })

  it.each([
    ['expired', 'The certificate has expired. → Renew it'],
    ['elsewhere', 'The certificate is for another name than that in the URL. → Use a name'],
    ['other-authority', 'The authority of the certificate is not known here. → Set NODE_EXTRA_CA_CERTS'],
  ])('has a certificate that is not valid: %s', async (certificate, text) => {
    await use(certificate)
    const { verdict, by } = await examine('authority')
    expect(by['store-tls']).toMatchObject(found('fault', text))
    expect(verdict).toBe('do-not-deploy')
  })

  it('has an expired certificate, which other commands name as well', async () => {
    await use('expired')
    const args = [SLUICE, 'consumers', 'list', '--url', `rediss://localhost:${port}`]
    const env = environmentWith({ NODE_EXTRA_CA_CERTS: join(redis.directory, 'authority.pem') })
    const { stderr } = await promisify(execFile)(process.execPath, args, { env }).catch(failed => failed)
    expect(stderr).toMatch(/^The store cannot be reached\. The certificate has expired\.\nRenew it/)
  })

  it('wants a certificate of its clients', async () => {
    await use('redis', 'yes')
    const { by } = await examine('authority')
    expect(by.protocol).toMatchObject(
      found('fault', 'certificate of its clients, which → Set tls-auth-clients no'),
    )
  })

  it('is at another port', async () => {
    const { by } = await examine('authority', `rediss://localhost:${redis.port}`)
    expect(by['store-tls']).toMatchObject(found('fault', 'does not use TLS at this port. → Check the port'))
  })
})

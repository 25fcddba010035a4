/** What docs/api.md and examples/python show to Python programs, against a built Worker in workerd. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { createToken } from '../../src/ops/tokens.ts'
import type { Scope } from '../../src/scopes.ts'
import { PYTHON, runClient, withoutFastapi, withoutRequests } from '../support/api-clients.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { blocksOf, ROOT, readPage } from '../support/pages.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { writeModules } from '../support/snippet-modules.ts'
import { startTestStack } from '../support/stack.ts'

const FROM_EXAMPLE = { PYTHONPATH: join(ROOT, 'examples/python'), PYTHONDONTWRITEBYTECODE: '1' }
const WITHOUT_FASTAPI = withoutFastapi()
const WITHOUT_REQUESTS = withoutRequests()
const hasPython = spawnSync(PYTHON, ['--version']).status === 0

describe.skipIf(!hasPython)(`Python${hasPython ? '' : ' (skipped: python3 is not installed)'}`, () => {
  let directory: string
  let stack: Awaited<ReturnType<typeof startTestStack>>

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sluice-python-'))
    const [config] = blocksOf('examples/python/README.md').filter(({ language }) => language === 'ts')
    writeModules(directory, {
      'sluice.config.ts': `import { defineConfig } from 'sluicegate'
        export default defineConfig({ origin: 'https://api.example.com', rules: [],
          routes: [{ name: 'me', match: { path: '/me' }, accept: ['api-key', 'anonymous'] }], ${config!.code} })`,
    })
    stack = await startTestStack(join(directory, 'sluice.config.ts'))
  })
  afterAll(async () => {
    await stack?.close()
    rmSync(directory, { recursive: true, force: true })
  })

  const [standardLibrary, withRequests] = blocksOf('docs/api.md')
    .filter(({ language }) => language === 'python')
    .map(({ code }) => code)

  async function python(program: string, scope: Scope = 'limits:use:sms'): Promise<string> {
    const store = createAdminStore({ ...stack.rest, keyLocking: false })
    const { token: TOKEN } = await createToken(store, { name: 'sms', scopes: [scope] })
    return await runClient(PYTHON, ['-c', program], { ...FROM_EXAMPLE, GATEWAY: stack.url, TOKEN })
  }

  const onPage = (code: string) => code.replaceAll('https://gateway.example.com', stack.url)

  /** The limit is 2 in any second. Five units need two seconds between the first one and the last one. */
  const FIVE_UNITS = (account: string) => `
started = time.monotonic()
for _ in range(5):
    wait_for("sms", {"account": "${account}"})
print(time.monotonic() - started)
`

  it('has the call that README.md shows', () => {
    const [readme] = blocksOf('README.md').filter(({ language }) => language === 'python')
    expect(standardLibrary).toContain(readme!.code.split('  #')[0])
  })

  it('waits for units of a limit, as docs/api.md shows with the standard library', async () => {
    const printed = await python(`${onPage(standardLibrary!)}${FIVE_UNITS('1')}`)
    expect(Number(printed)).toBeGreaterThan(1.9)
  })

  it('fails for a cost that the limit never allows', async () => {
    const program = `${onPage(standardLibrary!)}\nwait_for("sms", {"account": "2"}, cost=3)`
    await expect(python(program)).rejects.toThrow('sms never allows 3 units at once')
  })

  it.skipIf(WITHOUT_REQUESTS)(`decides with requests, as docs/api.md shows${WITHOUT_REQUESTS}`, async () => {
    const program = `${onPage(standardLibrary!)}\n${onPage(withRequests!)}\ndel urllib\n`
    const printed = await python(`${program}${FIVE_UNITS('3')}`)
    expect(Number(printed)).toBeGreaterThan(1.9)
  })

  it('runs limit.py, which keeps the pace and says what the API refuses', async () => {
    const started = performance.now()
    const printed = await python(`import runpy; runpy.run_module('limit')`)
    expect(printed.match(/^message \d is sent$/gm)).toHaveLength(5)
    expect(performance.now() - started).toBeGreaterThan(1900)
    await expect(
      python('import sluice, os; sluice.Limits(os.environ["GATEWAY"], os.environ["TOKEN"]).decide("mails")'),
    ).rejects.toThrow(/sluice.Mistake: 403: .*limits:use or limits:use:mails/)
  })

  it('waits for its turn, as docs/background-work.md shows', async () => {
    const [call] = readPage('docs/background-work.md').match(/(?<=`)Limits\(url, token\).*?(?=`)/)!
    const program = `import os\nfrom sluice import Limits\nurl, token = os.environ["GATEWAY"], os.environ["TOKEN"]\n${call}`
    await python(program.replace('"zendesk"', '"sms"'))
    await expect(python(program)).rejects.toThrow(/sluice.Mistake: 40[34]/)
  })

  it('reserves, settles once, pauses and resumes with sluice.py', async () => {
    const program = `
import json, os
from sluice import Limits, NotNow, Receipt
limits = Limits(os.environ["GATEWAY"], os.environ["TOKEN"])
identity = {"account": "9"}
units = limits.reserve("vendor", identity, {"tokens": 2000})
settled = [Receipt(limits, json.loads(json.dumps(units.data))).settle(tokens=731) for _ in range(2)]
limits.pause("vendor", identity, retry_after="30")
try:
    limits.reserve("vendor", identity, {"tokens": 2000})
except NotNow as refusal:
    paused = refusal.retry_after
limits.resume("vendor", identity)
again = limits.reserve("vendor", identity, {"tokens": 2000}, timeout=10)
left = [rule["remaining"] for rule in settled[0]["rules"] if rule["name"] == "tokens"]
print(json.dumps([[each["applied"] for each in settled], left, paused, again.data["limit"]]))
`
    const [applied, left, paused, again] = JSON.parse(await python(program, 'limits:use'))
    expect({ applied, left, again }).toEqual({ applied: [true, false], left: [999_269], again: 'vendor' })
    expect(paused).toBeGreaterThan(10)
    expect(paused).toBeLessThanOrEqual(30)
  })

  it('holds units in flight: never more at once than the limit, for longer than their ttl, also of a process that is killed', async () => {
    const program = `
import json, os, subprocess, sys, threading, time
from sluice import Limits, NotNow
limits, identity = Limits(os.environ["GATEWAY"], os.environ["TOKEN"]), {"account": "1"}
now, most, done, guard = 0, 0, [], threading.Lock()
def work(seconds):
    global now, most
    with limits.acquire("exports", identity, timeout=60):
        with guard:
            now += 1
            most = max(most, now)
        time.sleep(seconds)
        with guard:
            now -= 1
            done.append(seconds)
threads = [threading.Thread(target=work, args=(seconds,)) for seconds in [5, 5] + 18 * [0.1]]
for thread in threads: thread.start()
for thread in threads: thread.join()
code = '''
import sluice, os, time
with sluice.Limits(os.environ["GATEWAY"], os.environ["TOKEN"]).acquire("exports", {"account": "1"}, cost=3):
    print("holds", flush=True)
    time.sleep(60)
'''
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
try:
    with limits.acquire("exports", identity, timeout=0): refused = False
except NotNow:
    refused = True
child.kill()
with limits.acquire("exports", identity, timeout=30): pass
print(json.dumps([most, len(done), refused]))
`
    expect(JSON.parse(await python(program, 'limits:use:exports'))).toEqual([3, 20, true])
  })

  describe.skipIf(WITHOUT_FASTAPI)(`service.py on FastAPI${WITHOUT_FASTAPI}`, () => {
    const services: ChildProcess[] = []
    afterAll(() => services.every(service => service.kill('SIGKILL')))

    /** @param port where its gateway sends requests */
    async function startService(port: number, gateway: string, token: string): Promise<void> {
      const args = ['-m', 'uvicorn', 'service:app', '--port', `${port}`, '--log-level', 'warning']
      const env = { ...process.env, ...FROM_EXAMPLE, GATEWAY: gateway, TOKEN: token, NO_PROXY: '*' }
      services.push(spawn(PYTHON, args, { cwd: directory, env, stdio: ['ignore', 'ignore', 'inherit'] }))
      await vi.waitFor(() => fetch(`http://127.0.0.1:${port}/me`), { timeout: PATIENT_MS, interval: 50 })
    }

    it('sees the consumer that the gateway has verified, and limits messages by it', async () => {
      const port = await freePort()
      const gateway = await startTestStack(join(directory, 'sluice.config.ts'), {
        ...{ origin: `http://127.0.0.1:${port}`, rest: stack.rest },
      })
      try {
        const store = createAdminStore({ ...stack.rest, keyLocking: false })
        const { key } = await createKey(store, { consumer: 'acme' })
        const { token } = await createToken(store, { name: 'service', scopes: ['limits:use:sms'] })
        await startService(port, gateway.url, token)
        const ask = (path: string, headers: Record<string, string>, method = 'GET') =>
          fetch(`${gateway.url}${path}`, { method, headers })
        const own = { 'x-api-key': key, 'x-consumer-id': 'globex' }
        expect(await (await ask('/me', own)).json()).toEqual({ consumer: 'acme' })
        const forged = await ask('/me', { 'x-consumer-id': 'acme' })
        expect([forged.status, await forged.text()]).toEqual([
          403,
          expect.stringContaining('Send this request'),
        ])
        expect((await ask('/messages', { 'x-consumer-id': 'acme' }, 'POST')).status).toBe(401)
        const messages = await Promise.all(Array.from({ length: 8 }, () => ask('/messages', own, 'POST')))
        expect(messages.map(({ status }) => status)).toEqual(expect.arrayContaining([200, 429]))
        const refused = messages.find(({ status }) => status === 429)!
        expect(refused.headers.get('retry-after')).toBe('1')
      } finally {
        await gateway.close()
      }
    })

    it('serves other requests while one waits for its limit', async () => {
      const waiting: (() => void)[] = []
      const slow = createServer((request, response) => {
        waiting.push(() => response.writeHead(200).end('{"allowed":true,"delayMs":0}'))
        request.resume()
      })
      await listen(slow, 0)
      const port = await freePort()
      const url = `http://127.0.0.1:${port}`
      await startService(port, `http://127.0.0.1:${(slow.address() as AddressInfo).port}`, 'token')
      const headers = { 'x-consumer-id': 'acme' }
      const message = fetch(`${url}/messages`, { method: 'POST', headers })
      await vi.waitFor(() => expect(waiting).toHaveLength(1), PATIENT)
      expect((await fetch(`${url}/me`, { headers })).status).toBe(200)
      waiting[0]!()
      expect((await message).status).toBe(200)
      slow.closeAllConnections()
      slow.close()
    })
  })
})

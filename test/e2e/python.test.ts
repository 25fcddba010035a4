/** What docs/api.md and examples/python show to Python programs, against a built Worker in workerd. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { PYTHON, runClient, WITHOUT_REQUESTS } from '../support/api-clients.ts'
import { blocksOf, ROOT } from '../support/pages.ts'
import { writeModules } from '../support/snippet-modules.ts'
import { startTestStack } from '../support/stack.ts'

const EXAMPLE = join(ROOT, 'examples/python')
const hasPython = spawnSync(PYTHON, ['--version']).status === 0

describe.skipIf(!hasPython)(`Python${hasPython ? '' : ' (skipped: python3 is not installed)'}`, () => {
  let directory: string
  let stack: Awaited<ReturnType<typeof startTestStack>>

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sluice-python-'))
    const [config] = blocksOf('examples/python/README.md').filter(({ language }) => language === 'ts')
    writeModules(directory, {
      'sluice.config.ts': `import { defineConfig } from 'sluicegate'
        export default defineConfig({ origin: 'https://api.example.com', rules: [], ${config!.code} })`,
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

  async function python(program: string, scope = 'limits:use:sms' as const): Promise<string> {
    const store = createAdminStore({ ...stack.rest, keyLocking: false })
    const { token: TOKEN } = await createToken(store, { name: 'sms', scopes: [scope] })
    return await runClient(PYTHON, ['-c', program], { GATEWAY: stack.url, TOKEN })
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

  it('runs examples/python, which says what the API refuses', async () => {
    const program = readFileSync(join(EXAMPLE, 'limit.py'), 'utf8')
    const printed = await python(program)
    expect(printed.match(/^message \d is sent$/gm)).toHaveLength(3)
    expect(printed).toMatch(/^sms: next try in \d+ ms$/m)
    await expect(python(program.replace('"sms", {', '"mails", {'))).rejects.toThrow(
      /RuntimeError: 403: .*limits:use or limits:use:mails/,
    )
  })
})

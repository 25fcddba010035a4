/**
 * Every TypeScript snippet of README.md and of the pages: it compiles against the sources of the package, and its config is valid. A
 * snippet can be a module, some statements of one, a part of a config, or one rule.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { defineConfig } from '../../src/config/define.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import {
  type Block,
  blocksOf,
  isConfig,
  isConfigModule,
  isRule,
  PAGES,
  ROOT,
  readPage,
} from '../support/pages.ts'

type Snippet = Pick<Block, 'page' | 'code'>

const SNIPPETS: readonly Snippet[] = PAGES.flatMap(blocksOf).filter(({ language }) => language === 'ts')

/** What pages mention, but the snippet does not declare. */
const KNOWN_PLANS = "plans: ['free', 'pro', 'internal'],"

/** The snippet as a module that has a config as its default export. */
function toConfigModule(snippet: Snippet): string {
  if (isConfigModule(snippet)) return snippet.code
  const { code } = snippet
  const plans = /^plans: /m.test(code) ? '' : KNOWN_PLANS
  const body = isRule(snippet) ? `rules: [${code.trim().replace(/,$/, '')}]` : code
  const imported = code.includes('jwt({') ? 'defineConfig, jwt' : 'defineConfig'
  return `import { ${imported} } from 'sluicegate'\nexport default defineConfig({ origin: 'route', ${plans}\n${body} })\n`
}

/** The snippet as a module. Code in which no line begins with `import` or `export` becomes the body of a function. */
function toModule(snippet: Snippet): string {
  const { code } = snippet
  if (isConfig(snippet)) return toConfigModule(snippet)
  if (/^(import|export) /m.test(code)) return code
  const imports = [...code.matchAll(/import [^;)]+ from '[^']+'/g)].join('\n')
  const others = ['guard', 'startTestStore'].filter(name => code.includes(`${name}(`))
  const used = others.map(
    name => `import { ${name} } from 'sluicegate/${name === 'guard' ? name : 'testing'}'`,
  )
  return `${imports}\n${used.join('\n')}\nexport async function snippet() {\n${code}\n}\n`
}

/** Values of the reader's own code. */
const READERS_CODE = `
declare module 'express' {
  export default function express(): {
    use(...handlers: unknown[]): unknown
    get(path: string, handler: (req: any, res: any) => unknown): unknown
    listen(port: number): unknown
  }
}
/** The options that the page about a migration shows, as in version 0.4 of the package. */
declare module 'hono-rate-limiter' {
  import type { Context, MiddlewareHandler } from 'hono'
  export function rateLimiter(options: {
    windowMs?: number
    limit?: number
    standardHeaders?: boolean | 'draft-6' | 'draft-7'
    keyGenerator: (c: Context) => string | Promise<string>
  }): MiddlewareHandler
}
declare const app: { use(...handlers: (string | ((req: any, res: any, next: any) => unknown))[]): unknown }
declare const env: { LIMITS: Limits; SIGNUPS: Limits; GATEWAY: { fetch(url: string, init: { headers: Headers }): Promise<Response> } }
declare const request: Request
declare const handle: (request: Request) => Response
/** The type of a binding, as \`wrangler types\` generates it. */
type Limits = Service<ReturnType<typeof import('sluicegate/rpc').limitsEntrypoint>>
declare const config: import('sluicegate').ConfigInput
declare const userId: string
declare const redis: import('ioredis').Redis
declare const address: string
declare function createAccount(): Promise<boolean>
declare const limiter: import('sluicegate').Limiter
declare const message: Message<{ account: string }>
declare const job: import('bullmq').Job<{ account: string }>
declare const token: string
declare const DelayedError: typeof import('bullmq').DelayedError
declare const UnrecoverableError: typeof import('bullmq').UnrecoverableError
declare function callZendesk(task: { account: string }): Promise<void>
`

const NO_UNUSED = { noUnusedLocals: false, noUnusedParameters: false }

function writeProject(folder: string): void {
  const { exports } = JSON.parse(readPage('package.json')) as { exports: Record<string, { types?: string }> }
  const paths = Object.entries(exports).flatMap(([path, { types }]) =>
    types
      ? [
          [
            `sluicegate${path.slice(1)}`,
            [join(ROOT, types.replace('./dist/', 'src/').replace('.d.ts', '.ts'))],
          ],
        ]
      : [],
  )
  const compilerOptions = {
    ...{ lib: ['ESNext'], types: ['@cloudflare/workers-types', 'node'], paths: Object.fromEntries(paths) },
    // Then it does not reach the files of Node, whose types differ from those of Workers.
    customConditions: ['workerd'],
    ...NO_UNUSED,
  }
  const project = { extends: join(ROOT, 'tsconfig.base.json'), compilerOptions, include: ['**/*.ts'] }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(project))
  writeFileSync(join(folder, 'ambient.d.ts'), READERS_CODE)
  const shipped = toModule({
    page: '',
    code: "rules: [{ name: 'r', by: 'global', algorithm: 'gcra', limit: 1, period: '1s' }],\n",
  })
  SNIPPETS.forEach((snippet, i) => {
    // Each in a folder of its own, beside what it imports.
    const own = join(folder, nameOf(snippet, i))
    mkdirSync(join(own, 'src', 'built'), { recursive: true })
    writeFileSync(join(own, 'src', 'snippet.ts'), toModule(snippet))
    for (const place of ['.', 'src']) writeFileSync(join(own, place, 'sluice.config.ts'), shipped)
    writeFileSync(join(own, 'src/built/worker.generated.ts'), 'export default {}\n')
    writeFileSync(join(own, 'src/built/binding.generated.ts'), 'export class Limits {}\n')
  })
}

const nameOf = ({ page }: Snippet, i: number) => `${i}-${page.replace(/\W+/g, '-')}`

it('every snippet compiles', { timeout: 120_000 }, async () => {
  expect(SNIPPETS.length).toBeGreaterThan(35)
  const folder = mkdtempSync(join(ROOT, 'node_modules/.snippets-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  writeProject(folder)
  const output = await new Promise<string>(resolve => {
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
    execFile(process.execPath, [tsc, '-p', '.'], { cwd: folder }, (_, stdout) => resolve(stdout))
  })
  expect(output.split('\n').filter(line => line.includes('error'))).toEqual([])
})

it('the page about migrations has code of before and after, for each library', () => {
  const snippets = SNIPPETS.filter(({ page }) => page === 'docs/migrating.md')
  // What replaces express-rate-limit is on README.md.
  expect(snippets.map(({ code }) => code.includes("from 'sluicegate'"))).toEqual([
    ...[false, false, true],
    ...[false, true, false, true],
  ])
})

const CONFIGS = SNIPPETS.filter(isConfig)

it.each(CONFIGS.map((snippet, i) => [nameOf(snippet, i), snippet] as const))(
  '%s is a valid config',
  (_, snippet) => {
    const code = stripTypeScriptTypes(toConfigModule(snippet).replace(/^import .*\n/gm, ''))
    const make = new Function('defineConfig', 'jwt', code.replace('export default', 'return'))
    expect(() => checkedConfig(make(defineConfig, jwt))).not.toThrow()
  },
)

/** The configs that the code of a snippet passes to a function, as in `createLimiter({ … })` and `const config = defineConfig({ … })`. */
function configsIn({ code }: Snippet): string[] {
  const calls = /\b(?:defineConfig|createLimiter|expressGuard|guard|sluice|limitsEntrypoint|gateway)\((?=\{)/g
  return [...code.matchAll(calls)].map(call => {
    const rest = code.slice(call.index + call[0].length)
    let depth = 0
    // Braces in texts and comments do not count.
    for (const { 0: token, index } of rest.matchAll(/'(?:\\.|[^'\\])*'|\/\/.*|[{}]/g)) {
      if (token === '{') depth += 1
      if (token === '}') depth -= 1
      if (depth === 0) return rest.slice(0, index + 1)
    }
    throw new Error(`A brace is not closed: ${rest}`)
  })
}

const WITHIN_CODE = SNIPPETS.filter(snippet => !isConfig(snippet)).flatMap(snippet =>
  configsIn(snippet).map(config => [snippet.page, config] as const),
)

it.each(WITHIN_CODE)('the config within code of %s is valid: %s', (_, config) => {
  expect(() => checkedConfig(new Function(`return (${config})`)())).not.toThrow()
})

it('finds the configs within code', () => {
  const migrating = 'docs/migrating.md'
  expect(WITHIN_CODE.map(([page]) => page)).toEqual([
    ...['README.md', 'README.md'],
    ...[migrating, migrating, migrating],
  ])
})

/** Settings in sentences and tables, as in `store: { cluster: true }`, without those that leave a value open. */
const SETTINGS = PAGES.flatMap(page => {
  const all = readPage(page).matchAll(/`([a-zA-Z]+: [[{][^`]*[\]}])`/g)
  const complete = [...all]
    .map(([, text]) => text!)
    .filter(text => !/…| \| |[{,] \w+(?=[,} ]+[,}])/.test(text))
  return [...new Set(complete)].map(text => [page, text] as const)
})

it.each(SETTINGS)('%s names a valid setting: %s', (_, text) => {
  const setting = new Function(`return ({ ${text} })`)()
  const rule = {
    name: 'minute',
    by: 'consumer',
    algorithm: 'fixed-window',
    limit: 120,
    period: '1m',
  } as const
  const config = { origin: 'route', plans: ['free', 'pro'], rules: [rule] } as const
  const issuer = { secret: 'JWT_SECRET', algorithms: ['HS256' as const], issuer: 'i', audience: 'api' }
  // The setting can be one of the config, of the API, of a rule, of its match, of the credentials, or of an issuer.
  const places = [
    { ...config, ...setting },
    { ...config, api: setting },
    { ...config, rules: [{ ...rule, ...setting }] },
    { ...config, rules: [{ ...rule, match: setting }] },
    { ...config, credentials: setting },
    { ...config, credentials: { jwt: { auth0: jwt({ ...issuer, claims: { mode: 'env' }, ...setting }) } } },
  ]
  const mistakes = places.map(input => {
    try {
      checkedConfig(input)
      return undefined
    } catch (error) {
      return (error as Error).message
    }
  })
  expect(mistakes).toContain(undefined)
})

it('finds the settings in sentences', () => {
  expect(SETTINGS.length).toBeGreaterThan(20)
})

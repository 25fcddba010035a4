/** Clients of other projects that read docs/openapi.json (test/clients). A client that is not installed is left out of the tests. */
import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

/** The Python of the system, which has the packages of Debian. */
export const PYTHON = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3'

const CLIENTS = fileURLToPath(new URL('../clients/', import.meta.url))

/** Each returns what is missing for a client, and how to install it. Empty: nothing. */
const noPackages = () => (existsSync(`${CLIENTS}node_modules`) ? '' : 'npm ci --prefix test/clients')
const noPerl = () =>
  spawnSync('perl', ['-MOpenAPI::Client', '-e1']).status === 0 ? '' : 'apt-get install libopenapi-client-perl'
const noModules = (modules: string, packages: string) =>
  spawnSync(PYTHON, ['-c', `import ${modules}`]).status === 0 ? '' : `apt-get install ${packages}`

const without = (...missing: string[]) => {
  const commands = missing.filter(Boolean).join(' && ')
  if (commands && process.env.SLUICE_REQUIRE_CLIENTS)
    throw new Error(`SLUICE_REQUIRE_CLIENTS is set, and a client is not installed: ${commands}`)
  return commands && ` (skipped: ${commands})`
}

/** For the titles of suites that need a client. Functions, because each of them starts a program. */
export const withoutTypescriptClient = () => without(noPackages())
export const withoutPerlClient = () => without(noPackages(), noPerl())
export const withoutRequests = () => without(noModules('requests', 'python3-requests'))
export const withoutFastapi = () => without(noModules('fastapi, uvicorn', 'python3-fastapi python3-uvicorn'))
export const withoutCelery = () => without(noModules('celery, redis', 'python3-celery python3-redis'))

/** Runs a program in test/clients. @returns what it prints @throws Error with its errors */
export async function runClient(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const options = { cwd: CLIENTS, env: { ...process.env, NO_PROXY: '*', ...env } }
  const { stdout } = await promisify(execFile)(program, args, options).catch(error => {
    throw new Error(`${program} ${args.join(' ')} failed:\n${error.stdout}${error.stderr}`)
  })
  return stdout
}

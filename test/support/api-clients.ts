/** Clients of other projects that read docs/openapi.json (test/clients). A client that is not installed is left out of the tests. */
import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

/** The Python of the system, which has the packages of Debian. */
export const PYTHON = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3'

const CLIENTS = fileURLToPath(new URL('../clients/', import.meta.url))

/** What is missing for a client, and how to install it. Empty: nothing. */
const NO_PACKAGES = existsSync(`${CLIENTS}node_modules`) ? '' : 'npm ci --prefix test/clients'
const NO_PERL =
  spawnSync('perl', ['-MOpenAPI::Client', '-e1']).status === 0 ? '' : 'apt-get install libopenapi-client-perl'
const NO_REQUESTS =
  spawnSync(PYTHON, ['-c', 'import requests']).status === 0 ? '' : 'apt-get install python3-requests'

const hasModules = (modules: string) => spawnSync(PYTHON, ['-c', `import ${modules}`]).status === 0
const NO_FASTAPI = hasModules('fastapi, uvicorn') ? '' : 'apt-get install python3-fastapi python3-uvicorn'
const NO_CELERY = hasModules('celery, redis') ? '' : 'apt-get install python3-celery python3-redis'

const without = (...missing: string[]) => {
  const commands = missing.filter(Boolean).join(' && ')
  if (commands && process.env.SLUICE_REQUIRE_CLIENTS)
    throw new Error(`SLUICE_REQUIRE_CLIENTS is set, and a client is not installed: ${commands}`)
  return commands && ` (skipped: ${commands})`
}

/** For the titles of suites that need a client. */
export const WITHOUT_TYPESCRIPT_CLIENT = without(NO_PACKAGES)
export const WITHOUT_PERL_CLIENT = without(NO_PACKAGES, NO_PERL)
export const WITHOUT_REQUESTS = without(NO_REQUESTS)
export const WITHOUT_FASTAPI = without(NO_FASTAPI)
export const WITHOUT_CELERY = without(NO_CELERY)

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

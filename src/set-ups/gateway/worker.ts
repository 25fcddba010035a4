/** The gateway as a Worker: reads the variables, builds the app once per isolate, serves `fetch`. */
import type { Hono } from 'hono/tiny'
import type { Algorithms } from '../../algorithms/descriptor.ts'
import { SYSTEM_CLOCK } from '../../clock.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import { type Compilers, compileConfig } from '../../config/compile.ts'
import { applyVariables, type Environment } from '../../config/environment.ts'
import { createLog } from '../../log.ts'
import { deployConfig } from '../deploy-config.ts'
import { createIdentifier } from '../http/identify.ts'
import { replyToMisconfiguration } from '../http/unexpected.ts'
import { reportAtStart } from '../report-at-start.ts'
import { createApp, type GatewayParts } from './app.ts'

/** A name that bundlers do not resolve: in Node, where tests run a Worker, the module is missing. */
const WORKERS_MODULE: string = 'cloudflare:workers'

/** The parts that a Worker carries for its config. */
export interface Built {
  algorithms: Algorithms
  parts: GatewayParts
  compilers: Compilers
}

/** The default export of a Worker. */
export interface GatewayWorker {
  fetch(
    request: Request,
    env: Environment,
    ctx: { waitUntil(task: Promise<unknown>): void },
  ): Response | Promise<Response>
}

/**
 * Creates the Worker of a config.
 *
 * @param config already checked, so that the Worker need not carry the code that checks it
 */
export function createWorker(config: ConfigInput, { algorithms, parts, compilers }: Built): GatewayWorker {
  // Without the API, limits by name are not decided here, so the Worker does not carry the algorithms that only they use.
  const { limits: _, ...gatewayConfig } = config
  const compiled = compileConfig(config.api ? config : gatewayConfig, algorithms, compilers)
  const log = createLog(compiled.log.perSecond, SYSTEM_CLOCK.now)
  let app: Hono | undefined
  void import(/* @vite-ignore */ WORKERS_MODULE).then(
    ({ env }) => reportAtStart(() => createIdentifier(applyVariables(compiled, env), parts, env)),
    () => {},
  )

  function build(env: Environment): Hono {
    const { config: deployed, store } = deployConfig(compiled, env)
    const { SLUICE_ANALYTICS: analytics, ...variables } = env
    return createApp(deployed, store, parts, {
      variables,
      log,
      ...(analytics && { reporting: { analytics } }),
    })
  }

  return {
    fetch(request, env, ctx) {
      try {
        app ??= build(env)
      } catch (error) {
        return replyToMisconfiguration(log, error)
      }
      return app.fetch(request, env, ctx as Parameters<Hono['fetch']>[2])
    },
  }
}

/** A guard around a handler, on Bun: bun server.ts */
import { callerOf, guard } from 'sluicegate/guard'
import config from './sluice.config.ts'

function handle(request: Request): Response {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
}

Bun.serve({ port: Number(process.env.PORT ?? 3000), hostname: '127.0.0.1', fetch: guard(config)(handle) })

/** A guard around a handler, on Deno: deno run --allow-net --allow-env server.ts */
import { callerOf, guard } from 'sluicegate/guard'
import config from './sluice.config.ts'

function handle(request: Request): Response {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
}

Deno.serve({ port: Number(Deno.env.get('PORT') ?? 3000), hostname: '127.0.0.1' }, guard(config)(handle))

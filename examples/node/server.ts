/** A guard around a handler, on plain Node. */
import { createServer } from 'node:http'
import { nodeListener } from 'sluicegate/express'
import { callerOf, guard } from 'sluicegate/guard'
import config from './sluice.config.ts'

function handle(request: Request): Response {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
}

const port = Number(process.env.PORT ?? 3000)
createServer(nodeListener(guard(config)(handle))).listen(port, '127.0.0.1', () =>
  console.log(`http://127.0.0.1:${port}`),
)

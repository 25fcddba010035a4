/** A guard around a handler, as an AWS Lambda behind a function URL or an API gateway. */
import { Hono } from 'hono'
import { handle as lambda } from 'hono/aws-lambda'
import { callerOf, guard } from 'sluicegate/guard'
import config from './sluice.config.ts'

const guarded = guard(config)((request: Request, _env: unknown): Response => {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
})

// Hono's adapter makes a Request of the event, and passes the event as `env`.
export const handler = lambda(new Hono().all('*', c => guarded(c.req.raw, c.env)))

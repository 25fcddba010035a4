/** Limits of a Fastify app, in a hook that runs before the body is read. */
import fastify from 'fastify'
import { expressGuard } from 'sluicegate/express'
import config from './sluice.config.ts'

const app = fastify()
const limits = expressGuard(config)

// A refused request is answered there, and never gets further.
app.addHook('onRequest', (request, reply, done) => {
  limits(request.raw, reply.raw, error => done(error as Error | undefined))
})
app.addHook('onClose', () => limits.close())

app.get('/', ({ raw: { sluice } }) => ({
  hello: sluice?.consumer ?? 'stranger',
  left: sluice?.limits[0]?.remaining,
}))

console.log(await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' }))

/** Limits of a NestJS app on Express. */
import type { IncomingMessage } from 'node:http'
import { Controller, Get, Module, Req } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import type { NestExpressApplication } from '@nestjs/platform-express'
import { expressGuard } from 'sluicegate/express'
import config from './sluice.config.ts'

@Controller()
class Hello {
  @Get()
  hello(@Req() { sluice }: IncomingMessage) {
    return { hello: sluice?.consumer ?? 'stranger', left: sluice?.limits[0]?.remaining }
  }
}

@Module({ controllers: [Hello] })
class App {}

const app = await NestFactory.create<NestExpressApplication>(App, { logger: ['warn', 'error'] })
app.use(expressGuard(config))

const port = Number(process.env.PORT ?? 3000)
await app.listen(port, '127.0.0.1')
console.log(`http://127.0.0.1:${port}`)

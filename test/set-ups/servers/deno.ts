/** A guard as a server of Deno. Prints its address. */
import { addressOf, servedGuard } from '../../support/counted-guard.ts'
import type { SetUpConfigName } from '../../support/set-up-configs.ts'

declare const Deno: {
  env: { get(name: string): string | undefined }
  serve(
    options: { port: number; hostname: string; onListen(address: { port: number }): void },
    handle: ReturnType<typeof servedGuard>,
  ): unknown
}

Deno.serve(
  { port: 0, hostname: '127.0.0.1', onListen: ({ port }) => console.log(`http://127.0.0.1:${port}`) },
  servedGuard(Deno.env.get('SET_UP_CONFIG') as SetUpConfigName, { address: addressOf }),
)

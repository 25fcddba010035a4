/** A guard as a server of Bun. Prints its address. */
import { addressOf, servedGuard } from '../../support/counted-guard.ts'
import type { SetUpConfigName } from '../../support/set-up-configs.ts'

declare const Bun: {
  serve(options: { port: number; hostname: string; fetch: ReturnType<typeof servedGuard> }): { url: URL }
}

const fetch = servedGuard(process.env.SET_UP_CONFIG as SetUpConfigName, { address: addressOf })
console.log(Bun.serve({ port: 0, hostname: '127.0.0.1', fetch }).url.origin)

/** What worker-setup.ts provides to the tests inside workerd. */
import 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    restUrl: string
    restToken: string
    originUrl: string
    apiKey: string
    /** Of a consumer that one test has for itself. */
    burstKey: string
  }
}

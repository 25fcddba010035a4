/** The values that worker-setup.ts provides to the tests inside workerd. */
import 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    restUrl: string
    restToken: string
    originUrl: string
    apiKey: string
    /** The key of a consumer that only one test uses. */
    burstKey: string
  }
}

/** The entry of the Worker: the gateway that `npx sluicegate build` generates from sluice.config.ts. */
export { default } from './built/worker.generated.ts'

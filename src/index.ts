/** The Worker's entry: the gateway that `npx sluicegate build` makes of sluice.config.ts. */
export { default } from './built/worker.generated.ts'

/** What stands in src/built/ for a part that the config did not use when it was built. */

/** @param what there is not, as in `the part 'cors'` */
export function builtForAnotherConfig(what: string): Error {
  return new Error(
    `What was built is for another config: it does not have ${what}. Build it again with npx sluice build.`,
  )
}

/** @returns a function that throws */
export function notBuilt(part: string): () => never {
  return () => {
    throw builtForAnotherConfig(`the part '${part}'`)
  }
}

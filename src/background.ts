/** Work that goes on after a reply. The task is kept alive as long as the platform allows, and its failure is ignored. */
export type Background = (task: Promise<unknown>) => void

/** Where the platform has nothing to keep a task alive with: Node, whose process lives on. */
export const detached: Background = task => void task.catch(() => {})

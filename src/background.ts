/** Runs a task on after the reply. The platform keeps the task alive as long as it can. Its failure is ignored. */
export type Background = (task: Promise<unknown>) => void

/** For platforms that cannot keep a task alive, and for Node, whose process keeps running anyway. */
export const detached: Background = task => void task.catch(() => {})

/** proxy.js limits it. */
export const GET = () => Response.json({ hello: 'world' })

/** The body of each reply that is not a success, in the OpenAPI document. */

export const PROBLEM = {
  Problem: `type, title, status: integer, detail, requestId, errors?: Mistake[], scope?,
    id? "Of what the first request with this Idempotency-Key has created.",
    violated-policies?: string[],
    change?: (none|unknown) "Whether a change was made."`,
  Mistake: 'pointer, detail',
}

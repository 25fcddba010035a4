/** The body of each reply that is not a success, in the OpenAPI document. */

export const PROBLEM = {
  Problem: `type "A stable name of the kind of problem.",
    title, status: integer, detail, requestId, errors?: Mistake[],
    scope? "The scope that is missing.",
    id? "Of what the first request with this Idempotency-Key has created.",
    violated-policies?: string[] "The rules that refuse.",
    change?: (none|unknown) "Whether a change was made: none, or unknown."`,
  Mistake: 'pointer, detail',
}

/**
 * The style of all text in this project: plain English, as in the documentation of Cloudflare, Stripe or Redis. Subject, verb, object;
 * active voice; one idea a sentence; a thing by its name. Add a phrase here when a review finds it twice. A pattern must fit no good
 * sentence, because a finding is an error in CI.
 */

export interface Wording {
  /** Matched against one sentence, so `^` is its beginning. */
  pattern: RegExp
  /** What to write, as an instruction. */
  instead: string
  /** Headings may be worded so: "What a refused caller sees". */
  notInHeadings?: true
}

/** More words than this in one sentence are an error. Inline code, a URL and an image are one word each. */
export const MAX_SENTENCE_WORDS = 45

const VERB = '(?:is|are|was|were|has|have|can|must|may|does|stays?|counts?)'
/** One of these may begin a clause of its own, as in "What is stored if it is local". */
const CONJUNCTION = '(?:and|or|but|if|as|so|than|that|how|wh\\w+|before|after|until|once|because)'

/** Constructions that must be read twice. */
export const PHRASES: readonly Wording[] = [
  {
    // "Who can write to the store can switch". Neither a question, nor "Who it is for".
    pattern: /(?:^|; )who (?!(?:it|they|we|you|an?|the|each|this|that)\b)[^?]*$/i,
    instead: 'name the person or the thing, as in "anyone with write access", "a caller that …"',
    notInHeadings: true,
  },
  {
    // "What is left out is as in the rule": one verb is the subject of another. Not "What is stored".
    pattern: new RegExp(
      `(?:^|[;:] )what ${VERB} (?:(?!${CONJUNCTION}\\b)[^\\s,;:.?]+ )*?${VERB} (?!(?:and|or)\\b)\\S+`,
      'i',
    ),
    instead: 'begin with the thing itself, as in "Requests with a credential bypass the cache"',
    notInHeadings: true,
  },
  {
    // "What is asked with one bypasses the cache": the same with any other verb. Not "What is stored", "What is new in version 2".
    pattern:
      /^what (?:is|are|was|were) \w+ (?!it\b|in\b)(?:\w+ ){1,2}(?!always\b|this\b|its\b)[a-z]+(?:sses|xes|shes|ches|[^s\W]s) (?:the|a|an|all|every|no|its)\b/i,
    instead: 'begin with the thing itself, as in "Requests with a credential bypass the cache"',
    notInHeadings: true,
  },
  {
    pattern: /^what [^,;:?]+, (?:it|they)\b/i,
    instead: 'put the subject first, then the verb, then the object',
    notInHeadings: true,
  },
  { pattern: /\bwhoever\b/i, instead: 'write "anyone who", or name the person or the thing' },
  {
    pattern: /\b(?:nobody|no one)\b/i,
    instead: 'name the caller, the client or the process, as in "no caller", "no process"',
  },
  {
    pattern: /\bwhere there (?:is|are) none\b/i,
    instead: 'write "without one", "without it", or "if it does not exist"',
  },
  {
    pattern:
      /\b(?:(?:that|which|this|it) (?:is|are) none\b|(?:is|are) none of (?:ours|its|theirs)|^none of (?:ours|its|theirs))/i,
    instead: 'write "is not a …", as in "is not a valid duration"',
  },
  {
    // "is no duration", "is no argument". Not "there is no", "is no longer", "is no more than".
    pattern:
      /(?<!\bthere )\b(?:is|are|was|were) no (?!(?:longer|more|less|fewer|later|earlier|greater|larger|higher|lower|smaller|better|worse|different|other|such)\b)\p{L}/iu,
    instead: 'write "is not a …"',
  },
  { pattern: /\b(?:tells?|telling|told) of\b/i, instead: 'write "shows", "reports" or "describes"' },
  { pattern: /\btold\b(?! of\b)/i, instead: 'name the way: "sent", "reported", "shown", "configured"' },
  {
    pattern: /\b(?:it|the store|the origin|Redis|a rule|the issuer|the hook) is asked\b(?! to\b)/i,
    instead:
      'use the active voice and the field\'s verb, as in "Sluice queries the store", "the isolate sends a request to it"',
  },
  { pattern: /\bin the place of\b/i, instead: 'write "instead of"' },
  { pattern: /\b(?:to|can|cannot|could) be had\b/i, instead: 'write "is available", "can be installed"' },
  { pattern: /\bdoes not notice\b|\bdo not notice\b/i, instead: 'write "does not detect"' },
  {
    pattern: /\b(?:config|configuration|setting) is (?:right|wrong)\b/i,
    instead: 'write "valid" or "not valid"',
  },
  { pattern: /\bstumbl(?:e|es|ed|ing)\b/i, instead: 'say what the problem was' },
  { pattern: /^how \w+ (?:ago )?is not (?:how )?\w+/i, instead: 'say what is measured, and against what' },
]

/** Words that add nothing, and words that are out of use. */
export const WORDS: readonly Wording[] = [
  { pattern: /\bwhilst\b/i, instead: 'write "while"' },
  { pattern: /\b(?:amongst|amidst)\b/i, instead: 'write "among"' },
  {
    pattern: /\b(?:thereof|thereby|therein|wherein|whereby|whence|herein|hereby|heretofore)\b/i,
    instead: 'say it in plain words',
  },
  { pattern: /\banew\b/i, instead: 'write "again"' },
  { pattern: /\bupon\b/i, instead: 'write "on" or "when"' },
  { pattern: /\butili[sz](?:e|es|ed|ing)\b/i, instead: 'write "use"' },
  { pattern: /\bin order to\b/i, instead: 'write "to"' },
  {
    pattern: /\b(?:simply|easily|obviously|basically|of course|needless to say|trivially)\b/i,
    instead: 'leave it out: readers judge for themselves how hard it is',
  },
  {
    // It may speak of time: "has just refused", "just before".
    pattern:
      /(?<!\b(?:has|have|had|is|are|was|were|been|being|that|comes) )\bjust (?!(?:before|after|as|now|then|outside|inside|under|over|above|below|in time|been)\b)/i,
    instead: 'leave it out, or write "only"',
  },
]

/** One spelling for each term. docs/glossary.md explains the terms. */
export const TERMS: readonly Wording[] = [
  term('[Rr]ate-?limiters?', 'write "rate limiter"'),
  term('ratelimit(?:ing|ed)?', 'write "rate limit" or "rate limiting"'),
  term('Node ?JS|Node\\.js|[Nn]odejs', 'write "Node"'),
  term('api[- ]?keys?|A[Pp][Ii]-keys?|A[Pp][Ii] Keys?|Api keys?|A[Pp][Ii]Keys?', 'write "API key"'),
  term('[Jj]avascript|[Tt]ypescript', 'write "JavaScript", "TypeScript"'),
  term('[Gg]ithub', 'write "GitHub"'),
  term('NPM', 'write "npm"'),
  term('REDIS|redis(?!(?:\\+\\w+)?:)', 'write "Redis"'),
  term('valkey|cloudflare|upstash|hono', 'write the name with a capital letter'),
  term('LUA', 'write "Lua"'),
  term('[Ww]eb[ -]?sockets?|[Ww]eb[ -]Sockets?', 'write "WebSocket"'),
  term('[Kk]ill-?switch(?:es)?', 'write "kill switch"'),
  term('[Cc]ircuit-?breakers?', 'write "circuit breaker"'),
  term('[Tt]ime-outs?', 'write "timeout"'),
  term('[Hh]ost names?', 'write "hostname"'),
  term('[Uu]pstreams?|[Bb]ack-?ends?', 'write "origin", for the API behind the gateway'),
  term('[Bb]ehaviour(?:s|al)?', 'write "behavior": the spelling is American'),
  term('[Cc]olour(?:s|ed|ing)?', 'write "color": the spelling is American'),
  term(
    '(?:[Rr]ecogni|(?:[Uu]n)?[Aa]uthori|[Ii]nitiali|[Nn]ormali|[Ss]ynchroni|[Mm]inimi|[Mm]aximi|[Oo]ptimi|[Ss]ummari|[Oo]rgani|[Ss]eriali|[Rr]andomi)s(?:e|es|ed|ing|ation)',
    'write it with "z": the spelling is American',
  ),
  term('[Ll]icences?', 'write "license"'),
]

/** Not in a path, a URL, a package's name or quotation marks. */
function term(words: string, instead: string): Wording {
  return { pattern: new RegExp(`(?<![\\w@/.'"{-])(?:${words})(?![\\w/'"}=-]|\\.\\w|:/)`), instead }
}

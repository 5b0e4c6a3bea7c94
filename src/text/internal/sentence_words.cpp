#include "text/internal/sentence_words.h"

#include <unordered_set>

namespace espalier::text::internal {
namespace {

using Words = std::unordered_set<std::string_view>;

// Titles before names, and what is always followed by something by its meaning.
const Words kNeverLast = {"mr",  "mrs",  "ms",    "mx",   "dr",   "drs",   "prof",   "profs",  "hon",  "gen",  "lt",
                          "col", "capt", "cpt",   "cmdr", "maj",  "sgt",   "cpl",    "pvt",    "adm",  "sen",  "sens",
                          "rep", "reps", "gov",   "govs", "pres", "supt",  "insp",   "messrs", "mme",  "mlle", "fr",
                          "br",  "msgr", "amb",   "atty", "brig", "lieut", "asst",   "rev",    "herr", "e.g",  "i.e",
                          "eg",  "ie",   "cf",    "viz",  "vs",   "v.s",   "ca",     "approx", "resp", "incl", "excl",
                          "esp", "aka",  "a.k.a", "orig", "abbr", "pron",  "transl", "repr"};

// Before a number.
const Words kNumbered = {"no",  "nos",  "nr",  "fig",  "figs", "pp",  "pg",    "pgs", "vol", "vols", "ch",
                         "chs", "chap", "sec", "secs", "sect", "art", "arts",  "eq",  "eqs", "eqn",  "para",
                         "ex",  "tab",  "app", "cols", "pt",   "pts", "verse", "ed",  "eds", "op",   "ver"};

// Companies, what is after names, streets, states, months, measures, notes.
const Words kMayEnd = {
    "inc",     "corp", "co",   "cos",  "ltd",  "llc",  "bros", "plc",  "dept",  "depts",   "univ", "assn", "assoc",
    "bldg",    "natl", "intl", "mfg",  "govt", "acad", "jr",   "sr",   "esq",   "ph.d",    "m.d",  "b.a",  "m.a",
    "d.d.s",   "ll.d", "b.sc", "m.sc", "phd",  "st",   "mt",   "ft",   "ste",   "ave",     "blvd", "rd",   "hwy",
    "pkwy",    "sq",   "apt",  "rte",  "u.s",  "u.k",  "u.n",  "d.c",  "u.s.a", "u.s.s.r", "e.u",  "ala",  "ariz",
    "calif",   "colo", "del",  "fla",  "kan",  "ky",   "mich", "minn", "mont",  "neb",     "nev",  "okla", "penn",
    "tenn",    "tex",  "va",   "vt",   "wis",  "wyo",  "ont",  "jan",  "feb",   "apr",     "jul",  "aug",  "sept",
    "sep",     "oct",  "nov",  "dec",  "tue",  "tues", "thu",  "thur", "thurs", "fri",     "b.c",  "a.d",  "b.c.e",
    "c.e",     "hr",   "hrs",  "mins", "yr",   "yrs",  "wk",   "wks",  "mos",   "oz",      "lb",   "lbs",  "kg",
    "km",      "cm",   "mm",   "mph",  "cu",   "gal",  "avg",  "deg",  "tel",   "qty",     "al",   "ibid", "op.cit",
    "loc.cit", "publ", "proc", "symp", "n.b",  "ps",   "p.s",  "misc", "dict",  "phys",    "chem", "biol", "vers"};

// Words as well, or names of what came before.
const Words kEnds = {"etc", "et.al", "in",   "ill",  "ind",   "miss",  "mo",   "ore", "wash", "max",  "min",
                     "mi",  "pa",    "ga",   "org",  "mon",   "wed",   "sat",  "sun", "mar",  "may",  "jun",
                     "ext", "med",   "lit",  "temp", "math",  "tech",  "sci",  "ark", "conn", "stat", "inst",
                     "div", "comm",  "conf", "hist", "intro", "trans", "feat", "est", "dist", "lib",  "ref"};

const Words kStarters = {
    "the",     "this",    "these", "that",      "those",    "it",          "its",          "he",        "she",
    "we",      "they",    "you",   "his",       "her",      "their",       "our",          "my",        "your",
    "in",      "on",      "at",    "for",       "from",     "with",        "by",           "as",        "if",
    "when",    "while",   "where", "there",     "then",     "thus",        "hence",        "however",   "but",
    "and",     "or",      "so",    "because",   "although", "though",      "after",        "before",    "since",
    "until",   "during",  "what",  "who",       "why",      "how",         "which",        "whether",   "a",
    "an",      "all",     "some",  "many",      "most",     "both",        "each",         "every",     "no",
    "not",     "one",     "such",  "another",   "here",     "now",         "also",         "yet",       "still",
    "even",    "perhaps", "maybe", "meanwhile", "moreover", "furthermore", "nevertheless", "therefore", "instead",
    "finally", "later",   "today", "yesterday", "to",       "according",   "despite",      "unlike",    "like",
    "once",    "only",    "other", "others",    "under",    "within",      "without",      "upon",      "is",
    "are",     "was",     "were",  "do",        "does",     "did",         "can",          "could",     "will",
    "would",   "should",  "let",   "see",       "note",     "please",      "nobody",       "nothing",   "everyone",
    "someone", "i'm",     "i've",  "it's",      "he's",     "she's",       "there's",      "that's",    "don't",
    "we're",   "they're"};

const Words kTimeWords = {
    "est",    "edt",     "cst",       "cdt",      "mst",    "mdt",       "pst",     "pdt",      "gmt",      "utc",
    "bst",    "cet",     "et",        "ct",       "mt",     "pt",        "eastern", "central",  "pacific",  "mountain",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday",  "sunday",  "mon",      "tue",      "tues",
    "wed",    "thu",     "thur",      "thurs",    "fri",    "sat",       "sun",     "january",  "february", "march",
    "april",  "may",     "june",      "july",     "august", "september", "october", "november", "december"};

}  // namespace

Abbreviation abbreviation_of(std::string_view word) {
  if (kNumbered.contains(word)) return Abbreviation::kNumbered;
  if (kEnds.contains(word)) return Abbreviation::kEnds;
  if (kNeverLast.contains(word)) return Abbreviation::kNever;
  return kMayEnd.contains(word) ? Abbreviation::kMayEnd : Abbreviation::kNone;
}

bool often_begins_sentence(std::string_view word) { return kStarters.contains(word); }

bool belongs_to_time(std::string_view word) { return kTimeWords.contains(word); }

}  // namespace espalier::text::internal

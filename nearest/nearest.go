// Package nearest finds the known word that an unknown one means. Every message about an unknown name,
// key, kind or value proposes by it. It compares spellings; words that mean the same and are spelled
// otherwise come in a map.
package nearest

import (
	"slices"
	"strings"
)

// most is how many equally near words a proposal has. More of them say nothing.
const most = 3

// Meant returns "did you mean loss? ", with the blank, for a word that is almost one of known, and "" if
// there is nothing to propose. What follows in a message lists the known words. Each map of others has
// words of other tools with the known word that they mean; these come first.
func Meant[T ~string](word string, known []T, others ...map[string]string) string {
	list := Words(word, known, others...)
	if len(list) == 0 {
		return ""
	}
	text := string(list[0])
	for i, w := range list[1:] {
		if i == len(list)-2 {
			text += " or " + string(w)
		} else {
			text += ", " + string(w)
		}
	}
	return "did you mean " + text + "? "
}

// Word returns the known word that word almost is, or "" if none is, or several are equally near.
func Word[T ~string](word string, known []T, others ...map[string]string) T {
	if list := Words(word, known, others...); len(list) == 1 {
		return list[0]
	}
	return ""
}

// Words returns the known words that are nearest to word, at most three, in the order of known: the meaning
// of word in one of the maps; or what differs in case, dashes and underscores only; or the same parts in
// another order, or shortened; or the fewest letters to insert, remove, change or swap. A name that differs in digits
// only, like the next host of a row, is not near.
func Words[T ~string](word string, known []T, others ...map[string]string) []T {
	if len(word) > longest {
		return nil
	}
	lower := strings.ToLower(word)
	for _, m := range others {
		if t, ok := m[lower]; ok && slices.Contains(known, T(t)) {
			return []T{T(t)}
		}
	}
	plain := letters(lower)
	if plain == "" {
		return nil
	}
	for _, alike := range []func(k string) bool{
		func(k string) bool { return letters(k) == plain },
		func(k string) bool { return sameParts(lower, k) },
	} {
		if list := few(known, alike); len(list) > 0 {
			return list
		}
	}
	var list []T
	least := limit(plain)
	for _, k := range known {
		to := letters(strings.ToLower(string(k)))
		d := Distance(plain, to)
		if d > least || d >= len(plain) || d >= len(to) || digitsDiffer(plain, to) {
			continue
		}
		if d < least {
			list, least = nil, d
		}
		list = append(list, k)
	}
	if len(list) == 0 && len(plain) >= leastPart {
		list = few(known, func(k string) bool {
			k = letters(k)
			return !digitsDiffer(plain, k) && (strings.HasPrefix(k, plain) || len(plain) > leastPart && strings.HasSuffix(k, plain))
		})
	}
	if len(list) > most {
		return nil
	}
	return list
}

const (
	// longest bounds the words that are compared, in bytes.
	longest = 64
	// leastPart is the length of the shortest beginning of a word that stands for the word.
	leastPart = 3
)

// limit is how many letters of a word may be wrong. A word of two letters is too near to many.
func limit(word string) int {
	if len(word) < leastPart {
		return 0
	}
	return 1 + len(word)/6
}

// few returns the known words that are alike, if there are at most three.
func few[T ~string](known []T, alike func(lower string) bool) (list []T) {
	for _, k := range known {
		if alike(strings.ToLower(string(k))) {
			list = append(list, k)
		}
	}
	if len(list) > most {
		return nil
	}
	return list
}

var separators = strings.NewReplacer("-", "", "_", "", " ", "")

// letters leaves out what separates the parts of a word.
func letters(s string) string { return separators.Replace(s) }

// sameParts reports whether two words in small letters have the same parts, in any order, of which each may
// be the beginning of the other's, unless they differ in digits only: bw_write and write_bw, write_latency
// and write_lat, but not cn1 and cn10.
func sameParts(a, b string) bool {
	split := func(s string) []string {
		list := strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' || r == ' ' })
		slices.Sort(list)
		return list
	}
	return slices.EqualFunc(split(a), split(b), func(x, y string) bool {
		short := min(len(x), len(y))
		return x == y || short >= leastPart && x[:short] == y[:short] && !digitsDiffer(x, y)
	})
}

// digitsDiffer reports whether two words are equal but for digits.
func digitsDiffer(a, b string) bool {
	strip := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, s)
	}
	x := strip(a)
	return x != a && x == strip(b) && strip(b) != b
}

// Distance is the number of letters to insert, remove or change, or of neighbours to swap, to make b of a.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(row[j-1]+1, last[j]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

package snapshot

// verdict is what the rules say about a writer.
type verdict uint8

const (
	wins1 verdict = iota // by Rule 1
	wins2                // by Rule 2
	wins3                // by Rule 3
	loses
	open // Rule 3 must decide
	gone // the primary has changed: another writer has won
)

// rules are the two questions that a writer asks.
type rules struct {
	// backups judges the values that the swaps of the backups have left: those that the writer has
	// found, and its own where it has found the old one.
	backups func(list []uint64, mine uint64) verdict
	// primary judges a list that is open, once the primary is known.
	primary func(list []uint64, mine, old, primary uint64) verdict
}

// theRules are the published ones.
var theRules = rules{byBackups, byPrimary}

// byBackups are Rules 1 and 2. The list is not empty.
func byBackups(list []uint64, mine uint64) verdict {
	value, most := majority(list)
	switch {
	case most && value != mine:
		return loses
	case count(list, mine) == len(list):
		return wins1
	case most:
		return wins2
	case count(list, mine) == 0:
		return loses
	}
	return open
}

// byPrimary is Rule 3. It compares values as numbers.
func byPrimary(list []uint64, mine, old, primary uint64) verdict {
	if primary != old {
		return gone
	}
	for _, v := range list {
		if v < mine {
			return loses
		}
	}
	return wins3
}

// majority returns the value that more than half of the list has.
func majority(list []uint64) (value uint64, ok bool) {
	for _, v := range list {
		if 2*count(list, v) > len(list) {
			return v, true
		}
	}
	return 0, false
}

func count(list []uint64, value uint64) (n int) {
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

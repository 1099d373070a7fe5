package exercise

import (
	"fmt"
	"strconv"
)

// Finding is one line of a report.
type Finding struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// Report is the result of a check.
type Report struct {
	Findings []Finding `json:"findings"`
	answers  map[string]string
}

// Solved reports whether nothing is missing.
func (r *Report) Solved() bool {
	for _, f := range r.Findings {
		if !f.OK {
			return false
		}
	}
	return len(r.Findings) > 0
}

// add adds a finding: right if ok, otherwise missing.
func (r *Report) add(ok bool, right, missing string) {
	if ok {
		r.Findings = append(r.Findings, Finding{true, right})
	} else {
		r.Findings = append(r.Findings, Finding{false, missing})
	}
}

// number checks a numeric answer against what is right. wrong says what to look at again; it must not give
// the answer away.
func (r *Report) number(key string, right int64, wrong string) {
	if n, ok := r.parse(key); ok {
		r.add(n == right, fmt.Sprintf("%s=%s", key, r.answers[key]), fmt.Sprintf("%s=%s is wrong: %s", key, r.answers[key], wrong))
	}
}

// parse returns a numeric answer. It reports whether there is one, and otherwise adds that it is missing.
func (r *Report) parse(key string) (int64, bool) {
	text, given := r.answers[key]
	if !given {
		r.add(false, "", fmt.Sprintf("%s: no answer; give it by --answer %s=NUMBER", key, key))
		return 0, false
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		r.add(false, "", fmt.Sprintf("%s=%s is no number; write it like 17 or 0x2f81", key, text))
		return 0, false
	}
	return n, true
}

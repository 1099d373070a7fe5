// Package verbstest is what every implementation of the verbs interfaces must do, as tests: an
// implementation calls Run with a way to open two NICs that are joined by a link. The tests know
// nothing of the implementation but that.
//
// A test that needs something that a World does not have skips, and says what was missing.
package verbstest

// Package verbstest tests what every implementation of the verbs interfaces must do. An
// implementation calls Run with a function that opens two NICs joined by a link; the tests use
// nothing else of it.
//
// A test that needs a part that the World does not have is skipped, with a message that names the
// part.
package verbstest

package verbstest

import "os"

// Tries returns how often a test tries something, such as a random input: all if the environment
// variable RDMALAB_LONG is set, as make sweep does, otherwise few.
func Tries(all, few int) int {
	if os.Getenv("RDMALAB_LONG") != "" {
		return all
	}
	return few
}

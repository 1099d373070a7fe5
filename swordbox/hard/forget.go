package hard

import "github.com/rdmalab/rdmalab/swordbox/words"

// ForgetWords takes the values of all words as unknown, on an operator's wish. It returns how many there are.
func (m *Machine) ForgetWords() int {
	n := 0
	m.words.Each(func(w *words.Word) bool {
		w.Forget()
		n++
		return true
	})
	return n
}

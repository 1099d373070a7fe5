// Package sherman is a B+tree in the memory of servers that do nothing but own a NIC: clients search it, change it and split its
// pages by one-sided verbs alone. Writers lock pages by words in the memory of the NICs (Sherman, SIGMOD 2022).
package sherman

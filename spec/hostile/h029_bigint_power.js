return String(2n ** (10n ** 9n)).length
